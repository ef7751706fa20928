"""The synthetic set: the same everywhere, balanced, and not too hard to learn."""

import hashlib

import numpy as np

from senet_tf1 import data
from senet_tf1.data import synthetic


def test_it_is_the_same_every_time():
    dataset = data.load("synthetic", "nowhere")
    digest = hashlib.sha256(dataset.train.images.tobytes() + dataset.test.images.tobytes()).hexdigest()
    assert digest == "d47b37a48769e6ee741df3295e75b3f5af7d5b28fe782f7d02aace7118cad074"


def test_shapes_and_classes():
    dataset = data.load("synthetic", "nowhere")
    assert dataset.train.images.shape == (2000, 32, 32, 3) and dataset.train.images.dtype == np.uint8
    assert dataset.test.images.shape == (500, 32, 32, 3) and dataset.test.labels.dtype == np.int32
    assert np.bincount(dataset.train.labels).tolist() == [200] * 10
    assert np.bincount(dataset.test.labels).tolist() == [50] * 10
    assert len(dataset.class_names) == 10


def test_another_seed_gives_other_images_of_the_same_classes():
    first, second = synthetic.load(0), synthetic.load(1)
    np.testing.assert_array_equal(first.train.labels, second.train.labels)
    assert np.mean(first.train.images == second.train.images) < 0.02


def test_it_can_be_learnt():
    """The class with the nearest mean contrast of red, green and blue is right far more often than by chance."""
    train, test = synthetic.load().train, synthetic.load().test
    contrast = train.images.std((1, 2))
    means = np.stack([contrast[train.labels == label].mean(0) for label in range(10)])
    distances = np.square(test.images.std((1, 2))[:, np.newaxis] - means).sum(-1)
    assert np.mean(np.argmin(distances, 1) == test.labels) > 0.5
