"""The embedded sample of real CIFAR-10: the first 100 training and 50 test images of each class, in file order.

Made by tools/make_sample.py. It is enough to try everything without a network, and too small for results.
"""

import json
import os

import numpy as np

from senet_tf1.data import CIFAR10_CLASSES, Dataset, Split, sheets
from senet_tf1.errors import DataError

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sample")
TRAIN_PER_CLASS, TEST_PER_CLASS = 100, 50


def load() -> Dataset:
    """1,000 training and 500 test images, as many of each class. Raises DataError if the installation is damaged."""
    train, test = _split("train", 10 * TRAIN_PER_CLASS), _split("test", 10 * TEST_PER_CLASS)
    return Dataset("sample", "the sample in %s" % DIRECTORY, CIFAR10_CLASSES, train, test)


def _split(name: str, examples: int) -> Split:
    images = sheets.read(os.path.join(DIRECTORY, name + ".png"), examples)
    return Split(images, _labels(name, examples))


def _labels(name: str, examples: int) -> np.ndarray:
    path = os.path.join(DIRECTORY, "labels.json")
    try:
        with open(path, encoding="utf-8") as handle:
            labels = np.array(json.load(handle)[name])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError("%s can't be read (%s: %s); install again" % (path, type(error).__name__, error)) from error
    if labels.shape != (examples,) or labels.dtype.kind != "i" or labels.min() < 0 or labels.max() > 9:
        raise DataError("%s does not hold %d labels from 0 to 9 for %r; install again" % (path, examples, name))
    return labels.astype(np.int32)
