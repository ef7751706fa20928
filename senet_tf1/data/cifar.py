"""CIFAR-10 as it lies on disk: Python batches (untrusted pickles) or binary batches.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. A binary batch is 10,000 records of a label
byte and 3,072 bytes: red, green and blue plane, each in row-major order.
"""

import io
import os
import pickle
import pickletools
import stat
from typing import Callable, Optional

import numpy as np

from senet_tf1.data import CIFAR10_CLASSES, Dataset, Split
from senet_tf1.errors import DataError

PYTHON_DIRECTORY, BINARY_DIRECTORY = "cifar-10-batches-py", "cifar-10-batches-bin"
BATCHES = tuple("data_batch_%d" % number for number in range(1, 6)) + ("test_batch",)
EXAMPLES = 10000  # of a batch
VALUES = 3 * 32 * 32
LARGEST_PICKLE = 64 << 20  # bytes; a real batch has 31 million
MOST_TUPLES = 4 * EXAMPLES  # a batch that Python 3 pickled again has one an example
MOST_INSTRUCTIONS = 100 * EXAMPLES  # of a pickle; a batch has under 20 an example
LONGEST_LINE = 1000  # characters of a pickle's text
REMEDY = "Delete %s and start again: it will be fetched anew."


def find(data_dir: str) -> Optional[str]:
    """The directory of extracted batches in `data_dir` (or `data_dir` itself), Python's before binary; None if none.

    Raises:
      DataError: there is a file where a directory belongs, or `data_dir` can't be read.
    """
    for directory in (os.path.join(data_dir, PYTHON_DIRECTORY), os.path.join(data_dir, BINARY_DIRECTORY)):
        if os.path.isdir(directory):
            return directory
        if os.path.lexists(directory):
            raise DataError("%s: it is not a directory. Delete it and start again." % directory)
    return data_dir if os.path.isdir(data_dir) and _extension(data_dir) is not None else None


def load(directory: str, examples: int = EXAMPLES) -> Dataset:
    """Reads the six batches of an extracted directory.

    Args:
      directory: as `find` gives it.
      examples: expected of each batch.

    Raises:
      DataError: a batch is missing, damaged or not what it says it is.
    """
    extension = _extension(directory) or ""
    read = read_binary if extension else read_python
    batches = [read(os.path.join(directory, name + extension), examples) for name in BATCHES]
    images = np.concatenate([batch.images for batch in batches[:5]])
    labels = np.concatenate([batch.labels for batch in batches[:5]])
    return Dataset("cifar10", "from %s" % directory, CIFAR10_CLASSES, Split(images, labels), batches[5])


def read_binary(path: str, examples: int = EXAMPLES) -> Split:
    """One binary batch. Raises DataError if it is missing, of another size, or a label is not 0 to 9."""
    expected = examples * (VALUES + 1)
    content = _read(path, expected)
    if len(content) != expected:
        raise _damaged(path, "it has %d bytes, expected %d" % (len(content), expected))
    records = np.frombuffer(content, np.uint8).reshape(examples, VALUES + 1)
    return _split(path, records[:, 1:], records[:, 0])


def write_binary(path: str, split: Split) -> None:
    """One binary batch of uint8 images `[n, 32, 32, 3]`, flushed to the disk."""
    planes = split.images.transpose(0, 3, 1, 2).reshape(len(split.labels), VALUES)
    records = np.concatenate([split.labels.astype(np.uint8)[:, np.newaxis], planes], axis=1)
    with open(path, "wb") as handle:
        handle.write(records.tobytes())
        handle.flush()
        os.fsync(handle.fileno())


def read_python(path: str, examples: int = EXAMPLES) -> Split:
    """One Python batch, by an unpickler that makes nothing but what such a batch is made of.

    Raises:
      DataError: it is missing, asks for anything else (which is named), or its content is not a batch's.
    """
    batch = _unpickle(path, _read(path, LARGEST_PICKLE))
    if not isinstance(batch, dict):
        raise _damaged(path, "it holds a %s, expected a dict" % type(batch).__name__)
    values = {_text(key): value for key, value in batch.items() if isinstance(key, (bytes, str))}
    pixels, labels = getattr(values.get("data"), "array", None), values.get("labels")
    if pixels is None or pixels.shape != (examples, VALUES):
        found = "none" if pixels is None else "%s bytes" % (pixels.shape,)
        raise _damaged(path, "its data are %s, expected %s bytes" % (found, (examples, VALUES)))
    if not isinstance(labels, list) or len(labels) != examples or any(type(label) is not int for label in labels):
        raise _damaged(path, "its labels are not a list of %d integers" % examples)
    return _split(path, pixels, np.clip(np.array(labels, dtype=object), -1, 255).astype(np.int64))


class _Pixels:
    """Stands in for NumPy's array while unpickling: takes the state that NumPy writes, of bytes only."""

    def __init__(self, *unused):
        self.array = None

    def __setstate__(self, state) -> None:
        _, shape, dtype, is_fortran, content = state
        if not isinstance(dtype, _Dtype):
            raise pickle.UnpicklingError("its array is not one of bytes")
        self.array = np.frombuffer(content, np.uint8).reshape(shape, order="F" if is_fortran else "C")


class _Dtype:
    """Stands in for NumPy's dtype while unpickling; there is only one here."""

    def __init__(self, code, *unused):
        if code not in ("u1", b"u1"):
            raise pickle.UnpicklingError("its array is of %r, expected bytes (u1)" % (code,))

    def __setstate__(self, state) -> None:
        pass


def _from_buffer(content, dtype, shape, order) -> _Pixels:
    pixels = _Pixels()
    pixels.__setstate__((1, shape, dtype, order == "F", content))
    return pixels


# All that a batch asks for, pickled by Python 2 or 3 and NumPy 1 or 2 (and `_codecs.encode`): nothing of NumPy itself
# can be reached.
_ALLOWED = {("numpy", "ndarray"): _Pixels, ("numpy", "dtype"): _Dtype}
for _core in ("numpy.core", "numpy._core"):
    _ALLOWED[_core + ".multiarray", "_reconstruct"] = _Pixels
    _ALLOWED[_core + ".numeric", "_frombuffer"] = _from_buffer


class _Unpickler(pickle.Unpickler):
    """Finds only what a batch asks for; persistent ids are refused by the base class."""

    def __init__(self, content: bytes):
        super().__init__(_ShortLines(content), encoding="bytes")
        self._left = len(content)

    def find_class(self, module: str, name: str) -> Callable:
        if (module, name) == ("_codecs", "encode"):
            return self._encode
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError("it asks for %s.%s, which no batch needs: refused" % (module, name))
        return _ALLOWED[module, name]

    def _encode(self, text: str, codec: str) -> bytes:
        """How Python 3 writes bytes for Python 2's protocols; in all no more than there are in the file."""
        self._left -= len(text)
        if codec != "latin1" or self._left < 0:
            raise pickle.UnpicklingError("it encodes more than it holds, or not as latin1: refused")
        return text.encode("latin1")


class _ShortLines(io.BytesIO):
    """Refuses long lines: a number in text takes quadratic time, and what is long in a batch is not text."""

    def readline(self, *unused) -> bytes:
        line = super().readline(LONGEST_LINE + 1)
        if len(line) > LONGEST_LINE:
            raise pickle.UnpicklingError("it has a line of more than %d characters: refused" % LONGEST_LINE)
        return line


def _check_limits(content: bytes) -> None:
    """Refuses what would end the process before an exception could.

    A few bytes can ask for a memo of gigabytes, and hashing deeply nested tuples overflows the C stack (at 200,000 of
    them with a stack of 8 MB). Only the instructions are read here, nothing is made.
    """
    tuples = 0
    for number, (opcode, argument, _) in enumerate(pickletools.genops(_ShortLines(content))):
        if number > MOST_INSTRUCTIONS:
            raise pickle.UnpicklingError("it has more than %d instructions: refused" % MOST_INSTRUCTIONS)
        tuples += opcode.name.startswith("TUPLE") or opcode.name == "FROZENSET"
        if tuples > MOST_TUPLES:
            raise pickle.UnpicklingError("it makes more than %d tuples: refused" % MOST_TUPLES)
        if opcode.name.endswith("PUT") and argument > MOST_INSTRUCTIONS:
            raise pickle.UnpicklingError("it asks for a memo of %d entries: refused" % argument)


def _unpickle(path: str, content: bytes):
    try:
        _check_limits(content)
        return _Unpickler(content).load()
    except Exception as error:  # noqa: BLE001 - a damaged or hostile pickle can raise anything; all of it is refused
        raise _damaged(path, "it can't be unpickled: %s: %s" % (type(error).__name__, error)) from error


def _split(path: str, planes: np.ndarray, labels: np.ndarray) -> Split:
    wrong = np.flatnonzero((labels < 0) | (labels > 9))
    if wrong.size:
        raise _damaged(path, "label %d of example %d is out of range 0 to 9" % (labels[wrong[0]], wrong[0]))
    images = planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Split(np.ascontiguousarray(images), labels.astype(np.int32))


def _read(path: str, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit`; its size is looked at before it is read."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise _damaged(path, "it is not a regular file")
        if status.st_size > limit:
            raise _damaged(path, "it has %d bytes, more than the %d bytes expected" % (status.st_size, limit))
        with open(path, "rb") as handle:
            return handle.read(limit)
    except FileNotFoundError:
        raise _damaged(path, "it is missing") from None
    except OSError as error:
        raise DataError("can't read %s: %s. Make it readable, or delete it." % (path, error.strerror)) from error


def _damaged(path: str, reason: str) -> DataError:
    return DataError("%s: %s. %s" % (path, reason, REMEDY % os.path.dirname(path)))


def _extension(directory: str) -> Optional[str]:
    """ ".bin" for binary batches, "" for Python's, None for neither."""
    try:
        names = set(os.listdir(directory))
    except OSError as error:
        raise DataError("can't read the directory %s: %s. Make it readable." % (directory, error.strerror)) from error
    if any(name + ".bin" in names for name in BATCHES):
        return ".bin"
    return "" if any(name in names for name in BATCHES) else None


def _text(key) -> str:
    return key.decode("ascii", "replace") if isinstance(key, bytes) else key
