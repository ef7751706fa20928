"""Which data set a name gives, the sample and the synthetic set, and subsets."""

import hashlib

import numpy as np
import pytest

from senet_tf1 import data
from senet_tf1.data import cifar, download, sample
from senet_tf1.errors import ConfigError, DataError


def test_unknown_name():
    with pytest.raises(ConfigError, match="cifar10, sample, synthetic, auto"):
        data.load("mnist", "data")


class TestAuto:
    def test_falls_back_to_the_sample_loudly(self, tmp_path, monkeypatch):
        def unreachable(*unused):
            raise download.NotFetchedError("no network")

        monkeypatch.setattr(download, "ensure_cifar10", unreachable)
        lines = []
        assert data.load("auto", str(tmp_path), lines.append).name == "sample"
        assert all(line.startswith("WARNING") for line in lines) and "no network" in lines[0] and "SAMPLE" in lines[1]
        with pytest.raises(download.NotFetchedError):
            data.load("cifar10", str(tmp_path), lines.append)

    def test_does_not_hide_damaged_data(self, tmp_path):
        (tmp_path / cifar.BINARY_DIRECTORY).mkdir()
        (tmp_path / cifar.BINARY_DIRECTORY / "data_batch_1.bin").write_bytes(b"short")
        with pytest.raises(DataError, match="data_batch_1.bin: it has 5 bytes, expected 30730000"):
            data.load("auto", str(tmp_path), lambda line: None)


class TestSample:
    def test_it_is_the_first_of_each_class_of_cifar10(self):
        dataset = data.load("sample", "nowhere")
        assert dataset.train.images.shape == (1000, 32, 32, 3) and dataset.test.images.shape == (500, 32, 32, 3)
        assert np.bincount(dataset.train.labels).tolist() == [100] * 10
        assert np.bincount(dataset.test.labels).tolist() == [50] * 10
        # CIFAR-10's training set begins with a frog and two trucks, its test set with a cat and two ships.
        assert [dataset.class_names[label] for label in dataset.train.labels[:3]] == ["frog", "truck", "truck"]
        assert [dataset.class_names[label] for label in dataset.test.labels[:3]] == ["cat", "ship", "ship"]
        assert dataset.train.images[0, 0, 0].tolist() == [59, 62, 63]

    def test_not_a_pixel_is_lost(self):
        dataset = data.load("sample", "nowhere")
        digests = [hashlib.sha256(s.images.tobytes() + s.labels.tobytes()).hexdigest() for s in dataset[3:]]
        assert digests == SAMPLE_SHA256

    def test_a_damaged_installation_is_named(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sample, "DIRECTORY", str(tmp_path))
        with pytest.raises(DataError, match="train.png"):
            data.load("sample", "nowhere")
        (tmp_path / "train.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + b"\xff" * 20)
        with pytest.raises(DataError, match="is not a PNG sheet of 1024 x 1000 pixels"):
            data.load("sample", "nowhere")


SAMPLE_SHA256 = [
    "3a809ede6aacb516705ecd815be5e0391f3eebd8992e0d2c582e5c86b946ed65",
    "1f8fedc5b885f3d329448f16dab61ad55e439bc40dafc55906016aee52e05d55",
]


class TestSynthetic:
    def test_it_is_the_same_every_time(self):
        dataset = data.load("synthetic", "nowhere")
        digest = hashlib.sha256(dataset.train.images.tobytes() + dataset.test.images.tobytes()).hexdigest()
        assert digest == "d47b37a48769e6ee741df3295e75b3f5af7d5b28fe782f7d02aace7118cad074"
        assert np.bincount(dataset.train.labels).tolist() == [200] * 10
        assert np.bincount(dataset.test.labels).tolist() == [50] * 10

    def test_it_can_be_learnt(self):
        """The nearest class mean of the pixels' colours alone is right far more often than by chance."""
        dataset = data.load("synthetic", "nowhere")
        means = np.stack([dataset.train.images[dataset.train.labels == label].mean((0, 1, 2)) for label in range(10)])
        spread = dataset.train.images.std((1, 2))
        deviations = np.stack([spread[dataset.train.labels == label].mean(0) for label in range(10)])
        distances = np.square(dataset.test.images.std((1, 2))[:, None] - deviations[None]).sum(-1)
        assert means.shape == (10, 3)
        assert np.mean(np.argmin(distances, 1) == dataset.test.labels) > 0.5


class TestSubset:
    SPLIT = data.Split(np.arange(40).reshape(40, 1, 1, 1), np.array([0] * 20 + [1] * 10 + [2] * 10, np.int32))

    def test_as_many_of_each_class_in_order(self):
        chosen = data.subset(self.SPLIT, 9, 3)
        assert chosen.images.ravel().tolist() == [0, 1, 2, 20, 21, 22, 30, 31, 32]

    def test_what_does_not_divide(self):
        assert np.bincount(data.subset(self.SPLIT, 8, 3).labels).tolist() == [3, 3, 2]

    def test_too_many(self):
        with pytest.raises(DataError, match="--train_examples=33: class 1 has only 10"):
            data.subset(self.SPLIT, 33, 3)
