"""Decoding image files of any size, and refusing what is none."""

import struct

import numpy as np
import pytest

from senet_tf1 import predict
from senet_tf1.compat import tf
from senet_tf1.errors import DataError


def write(path, image, encode=tf.image.encode_png):
    with tf.Graph().as_default(), tf.Session() as session:
        path.write_bytes(session.run(encode(np.asarray(image, np.uint8))))
    return str(path)


@pytest.fixture
def decode():
    decoder = predict.Decoder(4, 4)
    with tf.Session() as session:
        yield lambda path: decoder.decode(session, str(path))


IMAGE = np.random.RandomState(0).randint(0, 256, (4, 4, 3))


def test_an_image_of_the_right_size_is_unchanged(tmp_path, decode):
    found = decode(write(tmp_path / "a.png", IMAGE))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, IMAGE)


def test_a_larger_one_is_averaged(tmp_path, decode):
    found = decode(write(tmp_path / "a.png", IMAGE.repeat(3, 0).repeat(3, 1)))
    np.testing.assert_array_equal(found, IMAGE)


def test_of_a_wide_one_the_middle_is_taken(tmp_path, decode):
    wide = np.concatenate([np.zeros((4, 3, 3)), IMAGE, np.full((4, 3, 3), 255)], axis=1)
    np.testing.assert_array_equal(decode(write(tmp_path / "a.png", wide)), IMAGE)


def test_grey_and_transparent_images_become_rgb(tmp_path, decode):
    grey = decode(write(tmp_path / "g.png", IMAGE[..., :1]))
    np.testing.assert_array_equal(grey, IMAGE[..., :1].repeat(3, 2))
    clear = np.concatenate([IMAGE, np.full((4, 4, 1), 255)], axis=2)
    np.testing.assert_array_equal(decode(write(tmp_path / "t.png", clear)), IMAGE)


def test_jpeg(tmp_path, decode):
    found = decode(write(tmp_path / "a.jpg", np.full((30, 50, 3), 77), tf.image.encode_jpeg))
    assert np.abs(found.astype(int) - 77).max() <= 2


@pytest.mark.parametrize("content", [b"", b"GIF89a" + b"\0" * 20, b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0nonsense"])
def test_what_is_no_image_is_refused_by_name(tmp_path, decode, content):
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(DataError, match="x.png is no PNG or JPEG image"):
        decode(tmp_path / "x.png")


def test_a_truncated_png(tmp_path, decode):
    path = write(tmp_path / "a.png", np.random.RandomState(0).randint(0, 256, (64, 64, 3)))
    with open(path, "rb+") as handle:
        handle.truncate(1000)
    with pytest.raises(DataError, match="a.png is no PNG"):
        decode(path)


def test_a_missing_file(decode):
    with pytest.raises(DataError, match="can't read the image nowhere.png: No such file"):
        decode("nowhere.png")


def test_a_bomb_is_refused_before_it_is_decoded(tmp_path, decode):
    header = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">IIBBBBB", 50000, 50000, 8, 2, 0, 0, 0)
    (tmp_path / "b.png").write_bytes(header + b"\0" * 100)
    with pytest.raises(DataError, match="50000 x 50000 pixels: at most 100000000"):
        decode(tmp_path / "b.png")


def test_the_table_and_the_record():
    result = predict.Prediction("a.png", [("cat", 0.75), ("dog", 0.25)])
    assert predict.table([result]).split() == ["a.png", "cat", "0.7500", "dog", "0.2500"]
    assert result.record()["class"] == "cat" and result.record()["probabilities"][1]["probability"] == 0.25
