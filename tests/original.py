"""The original graphs' reference figures, and how to make their inputs (golden/README.md says how both were made)."""

import json
import os
import zlib

import numpy as np

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
NAMES = {
    "se_resnext": "SE_ResNeXt",
    "se_inception_v4": "SE_Inception_v4",
    "se_inception_resnet_v2": "SE_Inception_resnet_v2",
}


def figures(arch):
    """The outputs of the original graph."""
    return np.load(os.path.join(GOLDEN, NAMES[arch] + ".npz"), allow_pickle=False)


def variables(arch):
    """{name: array} for every variable of the original graph that the recipe gives a value to."""
    with open(os.path.join(GOLDEN, NAMES[arch] + ".variables.json")) as handle:
        listed = json.load(handle)
    values = {name: _value(name, shape) for name, shape, _ in listed}
    return {name: value for name, value in values.items() if value is not None}


def batches():
    """Three batches of 8 images and labels."""
    random = np.random.RandomState(10)
    images = random.standard_normal((24, 32, 32, 3)).astype("float32")
    labels = random.randint(0, 10, 24)
    return [(images[start : start + 8], labels[start : start + 8]) for start in (0, 8, 16)]


def _value(name, shape):
    draws = np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF).standard_normal(shape).astype("float32")
    leaf = name.split("/")[-1]
    if leaf == "kernel":
        return (draws * np.float32(np.sqrt(2.0 / np.prod(shape[:-1])))).astype("float32")
    if leaf == "bias":
        return 0.01 * draws
    if leaf == "gamma":
        return 1 + 0.1 * draws
    if leaf in ("beta", "moving_mean"):
        return 0.1 * draws
    if leaf == "moving_variance":
        return np.abs(1 + 0.1 * draws)
    return None
