"""A made-up data set: deterministic, learnable, needs nothing.

Each class is a grating of its own direction and wavelength in a colour of its own, at a random phase, under noise.
"""

import numpy as np

from senet_tf1.data import Dataset, Split

CLASSES, SIZE = 10, 32
TRAIN_EXAMPLES, TEST_EXAMPLES = 2000, 500


def load(seed: int = 0) -> Dataset:
    """2,000 training and 500 test images, as many of each class; the same on every machine for the same seed."""
    random = np.random.RandomState(seed)
    class_names = tuple("grating%d" % label for label in range(CLASSES))
    train, test = _split(random, TRAIN_EXAMPLES), _split(random, TEST_EXAMPLES)
    return Dataset("synthetic", "made from seed %d" % seed, class_names, train, test)


def _split(random: np.random.RandomState, examples: int) -> Split:
    labels = (np.arange(examples) % CLASSES).astype(np.int32)
    angles, wavelengths = np.pi * labels / CLASSES, 4.0 + labels % 4
    rows, columns = np.mgrid[0:SIZE, 0:SIZE]
    along = np.cos(angles)[:, None, None] * rows + np.sin(angles)[:, None, None] * columns
    phases = random.uniform(0, 2 * np.pi, examples)
    waves = np.sin(2 * np.pi * along / wavelengths[:, None, None] + phases[:, None, None])
    colours = 0.5 + 0.5 * np.cos(2 * np.pi * (labels[:, None] / CLASSES + np.arange(3) / 3.0))
    clean = 128 + 60 * waves[..., None] * colours[:, None, None, :]
    noisy = clean + random.normal(0, 30, (examples, SIZE, SIZE, 3))
    return Split(np.clip(np.rint(noisy), 0, 255).astype(np.uint8), labels)
