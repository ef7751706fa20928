"""The embedded sample: real CIFAR-10 images, all of them and unchanged, or a clear error."""

import hashlib
import json
import shutil

import numpy as np
import pytest

from senet_tf1 import data
from senet_tf1.data import sample
from senet_tf1.errors import DataError

SAMPLE_SHA256 = [
    "3a809ede6aacb516705ecd815be5e0391f3eebd8992e0d2c582e5c86b946ed65",
    "1f8fedc5b885f3d329448f16dab61ad55e439bc40dafc55906016aee52e05d55",
]


def test_it_is_the_first_of_each_class_of_cifar10():
    dataset = data.load("sample", "nowhere")
    assert dataset.train.images.shape == (1000, 32, 32, 3) and dataset.test.images.shape == (500, 32, 32, 3)
    assert np.bincount(dataset.train.labels).tolist() == [100] * 10
    assert np.bincount(dataset.test.labels).tolist() == [50] * 10
    # CIFAR-10's training set begins with a frog and two trucks, its test set with a cat and two ships.
    assert [dataset.class_names[label] for label in dataset.train.labels[:3]] == ["frog", "truck", "truck"]
    assert [dataset.class_names[label] for label in dataset.test.labels[:3]] == ["cat", "ship", "ship"]
    assert dataset.train.images[0, 0, 0].tolist() == [59, 62, 63]


def test_not_a_pixel_is_lost():
    dataset = data.load("sample", "nowhere")
    digests = [hashlib.sha256(s.images.tobytes() + s.labels.tobytes()).hexdigest() for s in dataset[3:]]
    assert digests == SAMPLE_SHA256


def test_a_damaged_installation_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "DIRECTORY", str(tmp_path))
    with pytest.raises(DataError, match="train.png"):
        data.load("sample", "nowhere")
    (tmp_path / "train.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + b"\xff" * 20)
    with pytest.raises(DataError, match="is not a PNG sheet of 1024 x 1000 pixels"):
        data.load("sample", "nowhere")


@pytest.mark.parametrize(
    "text,message",
    [
        (None, "labels.json can't be read .FileNotFoundError"),
        ("{", "labels.json can't be read .*Expecting"),
        ("{}", "labels.json can't be read .KeyError: 'train'"),
        ("[]", "labels.json can't be read .TypeError"),
        (json.dumps({"train": [0] * 999}), "labels.json does not hold 1000 labels from 0 to 9 for 'train'"),
        (json.dumps({"train": [10] * 1000}), "labels.json does not hold 1000 labels from 0 to 9 for 'train'"),
    ],
)
def test_damaged_labels_are_named(tmp_path, monkeypatch, text, message):
    shutil.copy(sample.DIRECTORY + "/train.png", str(tmp_path))
    if text is not None:
        (tmp_path / "labels.json").write_text(text)
    monkeypatch.setattr(sample, "DIRECTORY", str(tmp_path))
    with pytest.raises(DataError, match=message + ".*install again"):
        data.load("sample", "nowhere")
