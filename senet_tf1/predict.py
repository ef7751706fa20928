"""Classifying image files: decoded, cropped to a square, resized, standardised as the training images were."""

import os
import struct
from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from senet_tf1.compat import tf
from senet_tf1.errors import DataError
from senet_tf1.trained import Trained

LARGEST_FILE = 64 << 20  # bytes
LARGEST_IMAGE = 100 * 1000 * 1000  # pixels; a small file can claim far more
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"


class Prediction(NamedTuple):
    """One image's classes, the most probable first."""

    path: str
    classes: List[Tuple[str, float]]  # name, probability

    def record(self) -> Dict:
        """For JSON."""
        classes = [{"class": name, "probability": probability} for name, probability in self.classes]
        return {"image": self.path, "class": self.classes[0][0], "probabilities": classes}


class Decoder:
    """Decodes PNG and JPEG files to `[height, width, 3]` bytes of one size."""

    def __init__(self, height: int, width: int):
        """Adds the decoding ops to the graph."""
        with tf.device("/cpu:0"), tf.name_scope("decode"):
            self._content = tf.placeholder(tf.string, [])
            self._jpeg_shape = tf.image.extract_jpeg_shape(self._content)
            image = tf.image.decode_image(self._content, channels=3, expand_animations=False)
            image.set_shape([None, None, 3])
            size = tf.minimum(tf.shape(image)[0], tf.shape(image)[1])
            top, left = (tf.shape(image)[0] - size) // 2, (tf.shape(image)[1] - size) // 2
            square = image[top : top + size, left : left + size]
            method = tf.image.ResizeMethod.AREA
            resized = tf.image.resize_images(square[tf.newaxis], [height, width], method=method)[0]
            self._image = tf.cast(tf.clip_by_value(tf.round(resized), 0.0, 255.0), tf.uint8)

    def decode(self, session: tf.Session, path: str) -> np.ndarray:
        """One file as uint8 `[height, width, 3]`: the largest square at its centre, averaged down (or up).

        Raises:
          DataError: there is no such file, it is no PNG or JPEG, it is damaged, or it is too large.
        """
        try:
            size = os.path.getsize(path)
            if size > LARGEST_FILE:
                raise DataError("%s has %d bytes: expected an image of at most %d" % (path, size, LARGEST_FILE))
            with open(path, "rb") as handle:
                content = handle.read()
            height, width = self._size(session, content)
            if not 0 < height * width <= LARGEST_IMAGE:
                raise DataError("%s has %d x %d pixels: at most %d are read" % (path, width, height, LARGEST_IMAGE))
            return session.run(self._image, {self._content: content})
        except OSError as error:
            raise DataError("can't read the image %s: %s" % (path, error.strerror)) from error
        except (tf.errors.OpError, struct.error, ValueError) as error:
            reason = str(getattr(error, "message", error)).splitlines()[0]
            raise DataError("%s is no PNG or JPEG image that can be decoded: %s" % (path, reason)) from error

    def _size(self, session: tf.Session, content: bytes) -> Tuple[int, int]:
        """Height and width that the file claims, without decoding it."""
        if content.startswith(_PNG):
            width, height = struct.unpack(">II", content[16:24])
            return height, width
        if content.startswith(_JPEG):
            height, width, _ = session.run(self._jpeg_shape, {self._content: content})
            return int(height), int(width)
        raise ValueError("it starts like neither")


def predict(network: Trained, paths: Sequence[str]) -> List[Prediction]:
    """Classifies files one by one. Raises DataError for the first file that can't be read."""
    with network.session.graph.as_default():
        decoder = Decoder(*network.image_shape[:2])
    results = []
    for path in paths:
        images = network.scale.apply(decoder.decode(network.session, path)[np.newaxis])
        probabilities = network.session.run(network.predictions.probabilities, {network.predictions.images: images})[0]
        order = np.argsort(-probabilities, kind="stable")
        results.append(Prediction(path, [(network.class_names[i], float(probabilities[i])) for i in order]))
    return results


def table(results: Sequence[Prediction], shown: int = 5) -> str:
    """The most probable classes of each file."""
    lines = []
    for result in results:
        lines.append(result.path)
        lines += ["  %-12s %.4f" % pair for pair in result.classes[:shown]]
    return "\n".join(lines)
