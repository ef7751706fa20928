"""Squeeze-and-excitation against NumPy."""

import numpy as np
import pytest

from senet_tf1 import blocks
from senet_tf1.compat import tf


@pytest.mark.parametrize("use_bias", [True, False])
def test_squeeze_excite_by_hand(use_bias):
    random = np.random.RandomState(0)
    x = random.standard_normal((2, 3, 3, 8)).astype("float32")
    y = blocks.squeeze_excite(tf.constant(x), 4, use_bias)
    variables = {variable.op.name: variable for variable in tf.trainable_variables()}
    values = {name: random.standard_normal(v.shape.as_list()).astype("float32") for name, v in variables.items()}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([variables[name].assign(value) for name, value in values.items()])
        found = session.run(y)
    assert len(values) == (4 if use_bias else 2)
    bias1, bias2 = values.get("se/fc1/bias", 0.0), values.get("se/fc2/bias", 0.0)
    hidden = np.maximum(x.mean((1, 2)) @ values["se/fc1/kernel"] + bias1, 0)
    assert hidden.shape == (2, 2)
    excitation = 1 / (1 + np.exp(-(hidden @ values["se/fc2/kernel"] + bias2)))
    np.testing.assert_allclose(found, x * excitation[:, None, None, :], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ratio", [0, 9])
def test_a_ratio_that_leaves_no_unit_is_refused(ratio):
    with pytest.raises(ValueError, match="expected 1 to 8"):
        blocks.squeeze_excite(tf.zeros([1, 2, 2, 8]), ratio, True)
