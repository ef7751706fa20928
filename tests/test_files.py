"""A file is the old one or the new one, never half of it."""

import os

import pytest

from senet_tf1.files import atomic_file


def test_the_name_appears_with_the_whole_content(tmp_path):
    path = tmp_path / "f"
    with atomic_file(str(path), "w") as handle:
        handle.write("né\n")
        assert not path.exists()
    assert path.read_bytes() == "né\n".encode("utf-8")
    assert os.listdir(str(tmp_path)) == ["f"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def test_an_error_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError):
        with atomic_file(str(path)) as handle:
            handle.write(b"new")
            raise RuntimeError
    assert path.read_bytes() == b"old" and os.listdir(str(tmp_path)) == ["f"]


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
