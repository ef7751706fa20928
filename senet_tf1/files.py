"""Writing files so that a crash leaves either the old content or the new one, never half of it."""

import contextlib
import os
import tempfile
from typing import IO, Iterator


@contextlib.contextmanager
def atomic_file(path: str, mode: str = "wb") -> Iterator[IO]:
    """Opens a temporary file beside `path` and renames it to `path` when the block ends well.

    The data reach the disk before the name does (fsync, then `os.replace`). If the block raises, the temporary
    file is removed and `path` is as it was.

    Args:
      path: the file to create or replace; its directory must exist.
      mode: "wb" or "w" (text is UTF-8 with Unix line ends).

    Raises:
      OSError: the directory is missing, read-only or full.
    """
    directory, name = os.path.split(os.path.abspath(path))
    descriptor, temporary = tempfile.mkstemp(prefix="." + name + ".", suffix=".tmp", dir=directory)
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    try:
        with os.fdopen(descriptor, mode, **text) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    """The process's umask; `mkstemp` makes files private, a result should be as readable as any other file."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
