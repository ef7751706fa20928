"""Reading CIFAR-10's batches: right numbers from good files, a clear refusal of everything else."""

import collections
import errno
import io
import os
import pickle
import struct

import numpy as np
import pytest

from senet_tf1 import data
from senet_tf1.data import cifar
from senet_tf1.errors import DataError

EXAMPLES = 20


def pixels(seed=0):
    return np.random.RandomState(seed).randint(0, 256, (EXAMPLES, 3072)).astype(np.uint8)


def labels():
    return [number % 10 for number in range(EXAMPLES)]


def forbidden(*unused, **unused_named):
    raise PermissionError(errno.EACCES, "Permission denied")


def write_pickle(path, value, protocol=2):
    with open(str(path), "wb") as handle:
        pickle.dump(value, handle, protocol=protocol)
    return str(path)


def write_python_batches(directory):
    os.makedirs(str(directory))
    for seed, name in enumerate(cifar.BATCHES):
        write_pickle(os.path.join(str(directory), name), {b"data": pixels(seed), b"labels": labels()})


class TestPythonBatches:
    @pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
    @pytest.mark.parametrize("key", [str, str.encode])
    def test_planes_become_pixels(self, tmp_path, protocol, key):
        path = write_pickle(tmp_path / "b", {key("data"): pixels(), key("labels"): labels()}, protocol)
        split = cifar.read_python(path, EXAMPLES)
        assert split.images.dtype == np.uint8 and split.images.shape == (EXAMPLES, 32, 32, 3)
        assert split.labels.dtype == np.int32 and split.labels.tolist() == labels()
        # Pixel (row 2, column 5) of example 3: red, green, blue are 1,024 apart in the batch.
        np.testing.assert_array_equal(split.images[3, 2, 5], pixels()[3, [69, 1024 + 69, 2048 + 69]])

    def test_as_python_2_wrote_them(self, tmp_path):
        """The real files: protocol 2, byte strings where Python 3 has text."""
        content = (
            b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b"
            b"\x87Rq\x05(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff"
            b"\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x18\x00\x00" + pixels()[:2].tobytes() + b"tbU\x06labels]q\x08(K"
            b"\x03K\x07eu."
        )
        (tmp_path / "b").write_bytes(content)
        split = cifar.read_python(str(tmp_path / "b"), 2)
        assert split.labels.tolist() == [3, 7]
        np.testing.assert_array_equal(split.images[1, 0, 1], pixels()[1, [1, 1025, 2049]])

    @pytest.mark.parametrize(
        "content,named",
        [
            (b"cposix\nsystem\n(S'touch /tmp/owned'\ntR.", "posix.system"),
            (b"c__builtin__\neval\n(S'1'\ntR.", "eval"),
            (b"cbuiltins\nexec\n(S'1'\ntR.", "builtins.exec"),
            (b"cnumpy\nload\n(S'/etc/passwd'\ntR.", "numpy.load"),
            (b"csenet_tf1.data.cifar\nos.system\n(S'true'\ntR.", "os.system"),
            (b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93.", "builtins.getattr"),
        ],
    )
    def test_anything_else_is_refused_by_name(self, tmp_path, content, named):
        (tmp_path / "evil").write_bytes(content)
        with pytest.raises(DataError, match=named) as caught:
            cifar.read_python(str(tmp_path / "evil"), EXAMPLES)
        assert "refused" in str(caught.value) and str(tmp_path / "evil") in str(caught.value)

    def test_objects_of_this_program_are_refused(self, tmp_path):
        path = write_pickle(tmp_path / "b", {b"data": pixels(), b"labels": labels(), b"x": collections.OrderedDict()})
        with pytest.raises(DataError, match="collections.OrderedDict"):
            cifar.read_python(path, EXAMPLES)

    @pytest.mark.parametrize(
        "value,message",
        [
            ([1, 2], "holds a list, expected a dict"),
            ({b"labels": labels()}, "its data are none"),
            ({b"data": pixels()[:5], b"labels": labels()}, r"\(5, 3072\) bytes, expected \(20, 3072\)"),
            ({b"data": pixels().astype(np.float32), b"labels": labels()}, "expected bytes"),
            ({b"data": np.array([None]), b"labels": labels()}, "expected bytes"),
            ({b"data": pixels(), b"labels": labels()[:-1]}, "not a list of 20 integers"),
            ({b"data": pixels(), b"labels": [0.5] * EXAMPLES}, "not a list of 20 integers"),
            ({b"data": pixels(), b"labels": labels()[:-1] + [10]}, "label 10 of example 19 is out of range"),
            ({b"data": pixels(), b"labels": [-1] + labels()[1:]}, "label -1 of example 0 is out of range"),
            ({b"data": pixels(), b"labels": [2**70] + labels()[1:]}, "out of range"),
        ],
    )
    def test_wrong_content_is_named(self, tmp_path, value, message):
        path = write_pickle(tmp_path / "b", value)
        with pytest.raises(DataError, match=message) as caught:
            cifar.read_python(path, EXAMPLES)
        assert "start again" in str(caught.value)

    @pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
    def test_column_major_arrays_give_the_same_pixels(self, tmp_path, protocol):
        path = write_pickle(tmp_path / "b", {b"data": np.asfortranarray(pixels()), b"labels": labels()}, protocol)
        planes = cifar.read_python(path, EXAMPLES).images.transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(planes.reshape(EXAMPLES, 3072), pixels())

    @pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
    def test_a_whole_batch_that_python_3_pickled_again(self, tmp_path, protocol):
        """10,000 labels and file names as bytes, each made by `_codecs.encode` in protocol 2: within the limits."""
        names = [b"leptodactylus_s_%06d\xe9.png" % number for number in range(cifar.EXAMPLES)]
        batch = {b"batch_label": b"training batch 1 of 5", b"labels": labels() * 500, b"filenames": names}
        batch[b"data"] = np.zeros((cifar.EXAMPLES, 3072), np.uint8)
        split = cifar.read_python(write_pickle(tmp_path / "b", batch, protocol))
        assert split.images.shape == (10000, 32, 32, 3) and split.labels[:20].tolist() == labels()

    @pytest.mark.parametrize(
        "content,message",
        [
            # The first two would take 4 GB for a memo and overflow the C stack while hashing: no exception would come.
            (b"\x80\x02Nr\xff\xff\xff\x0f.", "a memo of 268435455 entries"),
            (b"\x80\x02})" + b"\x85" * 300000 + b"Ns.", "more than 40000 tuples"),
            (b"\x80\x02})" + b"\x85" * 39999 + b"Ns.", "its data are none"),  # its key has no repr
            (pickle.dumps({1 << 80000: 1}, 2), "its data are none"),  # nor has this one, since Python 3.11
            (b"\x80\x02](" + b"N" * 1100000 + b"e.", "more than 1000000 instructions"),
            (b"\x80\x02L" + b"9" * 1000000 + b"L\n.", "a line of more than 1000 characters"),
            (b"\x80\x02\x8e" + struct.pack("<Q", 1 << 50) + b"x.", "can't be unpickled"),  # a string of 2**50 bytes
            (b"\x80\x02Pmine\n.", "can't be unpickled: UnpicklingError"),  # a persistent id
            (b"\x80\x02\x82\x01.", "can't be unpickled"),  # an extension code
            (
                b"\x80\x02(X\xe8\x03\0\0" + b"a" * 1000 + b"q\0X\6\0\0\0latin1q\1"
                b"c_codecs\nencode\nq\2" + b"h\2h\0h\1\x86R" * 1000 + b"l.",
                "it encodes more than it holds",  # 1,000 copies of one string
            ),
        ],
        ids=[
            "memo",
            "deep",
            "no_repr",
            "big_int",
            "long_list",
            "long_line",
            "long_string",
            "persistent",
            "extension",
            "copies",
        ],
    )
    def test_bombs_are_refused(self, tmp_path, content, message):
        (tmp_path / "b").write_bytes(content)
        with pytest.raises(DataError, match=message):
            cifar.read_python(str(tmp_path / "b"), EXAMPLES)

    def test_every_truncation_is_refused(self, tmp_path):
        buffer = io.BytesIO()
        pickle.dump({b"data": pixels(), b"labels": labels()}, buffer, protocol=2)
        content = buffer.getvalue()
        for length in list(range(0, 200, 7)) + [len(content) // 2, len(content) - 1]:
            (tmp_path / "b").write_bytes(content[:length])
            with pytest.raises(DataError, match="can't be unpickled|expected"):
                cifar.read_python(str(tmp_path / "b"), EXAMPLES)

    def test_too_large_a_file_is_not_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr(cifar, "LARGEST_PICKLE", 1000)
        path = write_pickle(tmp_path / "b", {b"data": pixels(), b"labels": labels()})
        with pytest.raises(DataError, match="more than the 1000 bytes"):
            cifar.read_python(path, EXAMPLES)

    def test_what_is_not_a_regular_file_is_not_read(self, tmp_path):
        os.mkfifo(str(tmp_path / "b"))  # reading it would wait for ever
        with pytest.raises(DataError, match="b: it is not a regular file"):
            cifar.read_python(str(tmp_path / "b"), EXAMPLES)

    def test_what_may_not_be_read_is_named(self, tmp_path, monkeypatch):
        path = write_pickle(tmp_path / "b", {})
        monkeypatch.setattr("builtins.open", forbidden)
        with pytest.raises(DataError, match="can't read .*b: Permission denied. Make it readable"):
            cifar.read_python(path, EXAMPLES)


class TestBinaryBatches:
    def test_round_trip(self, tmp_path):
        split = data.Split(np.random.RandomState(1).randint(0, 256, (EXAMPLES, 32, 32, 3)).astype(np.uint8), labels())
        split = split._replace(labels=np.array(labels(), np.int32))
        path = str(tmp_path / "b.bin")
        cifar.write_binary(path, split)
        found = cifar.read_binary(path, EXAMPLES)
        np.testing.assert_array_equal(found.images, split.images)
        np.testing.assert_array_equal(found.labels, split.labels)
        content = (tmp_path / "b.bin").read_bytes()
        assert content[3073] == 1 and content[3074] == split.images[1, 0, 0, 0]

    @pytest.mark.parametrize("change,message", [(-1, "expected 61460"), (1, "more than the 61460")])
    def test_wrong_size(self, tmp_path, change, message):
        (tmp_path / "b.bin").write_bytes(b"\0" * (EXAMPLES * 3073 + change))
        with pytest.raises(DataError, match=message):
            cifar.read_binary(str(tmp_path / "b.bin"), EXAMPLES)

    def test_label_out_of_range(self, tmp_path):
        (tmp_path / "b.bin").write_bytes(b"\x0a" + b"\0" * (EXAMPLES * 3073 - 1))
        with pytest.raises(DataError, match="label 10 of example 0"):
            cifar.read_binary(str(tmp_path / "b.bin"), EXAMPLES)


class TestDirectories:
    def test_python_batches_in_order(self, tmp_path):
        write_python_batches(tmp_path / cifar.PYTHON_DIRECTORY)
        dataset = cifar.load(cifar.find(str(tmp_path)), EXAMPLES)
        assert dataset.train.images.shape == (5 * EXAMPLES, 32, 32, 3)
        assert dataset.train.images[2 * EXAMPLES, 0, 0, 0] == pixels(2)[0, 0]
        assert dataset.test.images[0, 0, 0, 0] == pixels(5)[0, 0]

    def test_the_directory_itself_can_be_named(self, tmp_path):
        write_python_batches(tmp_path / "mine")
        assert cifar.find(str(tmp_path / "mine")) == str(tmp_path / "mine")

    def test_nothing_there(self, tmp_path):
        assert cifar.find(str(tmp_path)) is None
        assert cifar.find(str(tmp_path / "no")) is None

    def test_a_missing_batch_is_named(self, tmp_path):
        write_python_batches(tmp_path / cifar.PYTHON_DIRECTORY)
        os.unlink(str(tmp_path / cifar.PYTHON_DIRECTORY / "data_batch_4"))
        with pytest.raises(DataError, match="data_batch_4: it is missing"):
            cifar.load(cifar.find(str(tmp_path)), EXAMPLES)

    def test_an_empty_directory_is_not_passed_over(self, tmp_path):
        (tmp_path / cifar.PYTHON_DIRECTORY).mkdir()
        with pytest.raises(DataError, match="cifar-10-batches-py/data_batch_1: it is missing. Delete .*-py and start"):
            cifar.load(cifar.find(str(tmp_path)))

    def test_a_file_where_the_directory_belongs(self, tmp_path):
        (tmp_path / cifar.BINARY_DIRECTORY).write_bytes(b"")
        with pytest.raises(DataError, match="cifar-10-batches-bin: it is not a directory. Delete it"):
            cifar.find(str(tmp_path))

    def test_a_directory_that_may_not_be_listed(self, tmp_path, monkeypatch):
        monkeypatch.setattr(cifar.os, "listdir", forbidden)
        with pytest.raises(DataError, match="can't read the directory .*: Permission denied"):
            cifar.find(str(tmp_path))
