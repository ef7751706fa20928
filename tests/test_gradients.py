"""Clipping against NumPy."""

import numpy as np
import pytest

from senet_tf1 import gradients
from senet_tf1.compat import tf

VALUES = [np.array([3.0, 0.0], np.float32), np.array([[0.0, -4.0], [12.0, 0.0]], np.float32)]  # norms 3, 12.65; 13


def clip(values, mode, limit):
    clipped, norm = gradients.clip([tf.constant(value) for value in values], mode, limit)
    with tf.Session() as session:
        return session.run([clipped, norm])


@pytest.mark.parametrize(
    "mode,limit,expected",
    [
        ("none", 1.0, VALUES),
        ("global_norm", 6.5, [value / 2 for value in VALUES]),
        ("global_norm", 20.0, VALUES),
        ("norm", 1.5, [VALUES[0] / 2, VALUES[1] * 1.5 / np.sqrt(160)]),
        ("norm", 5.0, [VALUES[0], VALUES[1] * 5 / np.sqrt(160)]),
        ("value", 3.5, [VALUES[0], np.clip(VALUES[1], -3.5, 3.5)]),
    ],
)
def test_modes(mode, limit, expected):
    clipped, norm = clip(VALUES, mode, limit)
    assert norm == pytest.approx(13.0)
    for found, value in zip(clipped, expected):
        np.testing.assert_allclose(found, value, rtol=1e-6)


@pytest.mark.parametrize("mode", ["none", "global_norm", "norm", "value"])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_the_norm_before_clipping_says_that_a_gradient_is_not_finite(mode, bad):
    _, norm = clip([VALUES[0], np.array([bad], np.float32)], mode, 1.0)
    assert not np.isfinite(norm)


def test_unknown():
    with pytest.raises(ValueError, match="none, global_norm, norm or value"):
        clip(VALUES, "hard", 1.0)


def test_a_variable_without_gradient_in_every_replica_is_left_out():
    tensor = tf.constant(1.0)
    assert gradients.with_gradient(["a", "b"], [[tensor, None], [tensor, None]]) == [0]


def test_a_gradient_in_some_replicas_only_is_an_error_that_names_both():
    tensor = tf.constant(1.0)
    with pytest.raises(ValueError, match="stem/kernel: none in tower 1, 2"):
        gradients.with_gradient(["a", "stem/kernel"], [[tensor, tensor], [tensor, None], [tensor, None]])
