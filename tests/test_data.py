"""Which data set a name gives, and subsets."""

import numpy as np
import pytest

from senet_tf1 import data
from senet_tf1.data import cifar, download
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

    def test_does_not_hide_a_damaged_archive(self, tmp_path):
        (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"half")
        with pytest.raises(DataError, match="expected 170052171 and c32a1d4ab5d03f1284b67883e8d87530. Delete it"):
            data.load("auto", str(tmp_path), lambda line: None)

    def test_takes_cifar10_where_it_is(self, tmp_path, monkeypatch):
        monkeypatch.setattr(download, "ensure_cifar10", lambda data_dir, report: data_dir + "/there")
        monkeypatch.setattr(cifar, "load", lambda directory: data.load("synthetic", "")._replace(source=directory))
        lines = []
        assert data.load("auto", "d", lines.append).source == "d/there"
        assert lines == ["data: CIFAR-10, d/there"]


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
