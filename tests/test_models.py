"""The registry, the sizes the networks take, and options."""

import numpy as np
import pytest

from senet_tf1 import models
from senet_tf1.compat import tf

TINY = {"cardinality": 2, "depth": 4, "blocks": 1}


def images(height=32, width=32, channels=3):
    return tf.placeholder(tf.float32, [None, height, width, channels])


def test_names_are_sorted():
    assert models.names() == ["se_inception_resnet_v2", "se_inception_v4", "se_resnext"]


def test_unknown_network_and_option():
    with pytest.raises(ValueError, match="no network 'vgg'; there are se_inception_resnet_v2"):
        models.build("vgg", images(), True)
    with pytest.raises(TypeError, match="cardinality"):
        models.build("se_inception_v4", images(), True, cardinality=2)


@pytest.mark.parametrize("size", [(32, 32), (33, 17), (1, 1), (None, None), (64, 48)])
def test_se_resnext_takes_any_size(size):
    logits = models.build("se_resnext", images(*size), False, num_classes=7, **TINY)
    assert logits.shape.as_list() == [None, 7] and logits.dtype == tf.float32
    height, width = size[0] or 24, size[1] or 24
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        feeds = {session.graph.get_tensor_by_name("Placeholder:0"): np.zeros((2, height, width, 3))}
        assert session.run(logits, feeds).shape == (2, 7)


@pytest.mark.parametrize("arch", ["se_inception_v4", "se_inception_resnet_v2"])
def test_the_inception_networks_say_what_is_too_small(arch):
    assert models.build(arch, images(11, 40), False).shape.as_list() == [None, 10]
    with pytest.raises(ValueError, match="at least 11 pixels"):
        with tf.variable_scope("other"):
            models.build(arch, images(40, 10), False)


def test_unknown_channels():
    with pytest.raises(ValueError, match="number of channels"):
        models.build("se_resnext", images(channels=None), False)


@pytest.mark.parametrize("option", [{"reduction_ratio": 0}, {"reduction_ratio": 65}])
def test_options_out_of_range(option):
    with pytest.raises(ValueError, match="reduction_ratio"):
        models.build("se_resnext", images(), False, **option)


def test_se_position():
    """On the residual branch as the paper, or on the block as the original: other numbers, the same variables."""
    with pytest.raises(ValueError, match="block, residual"):
        models.build("se_inception_resnet_v2", images(), False, se_position="stem")
    shapes = []
    for position in ("block", "residual"):
        with tf.Graph().as_default() as graph:
            models.build("se_inception_resnet_v2", images(11, 11), False, se_position=position)
            shapes.append({v.op.name: v.shape.as_list() for v in tf.global_variables()})
            scaled = [op for op in graph.get_operations() if op.name == "block_a1/se/mul"][0]
            source = scaled.inputs[0].op.type
        assert source == ("Relu" if position == "block" else "BiasAdd")
    assert shapes[0] == shapes[1]


def test_conv_bias_is_the_initial_value_of_the_convolutions_biases_only():
    models.build("se_inception_v4", images(11, 11), False, conv_bias=0.75)
    biases = [v for v in tf.trainable_variables() if v.op.name.endswith("/bias")]
    with tf.Session() as session:
        session.run([v.initializer for v in biases])
        values = {v.op.name: value for v, value in zip(biases, session.run(biases))}
    assert all((value == (0.0 if "/fc" in name else 0.75)).all() for name, value in values.items())
    assert len(values) == CONVOLUTIONS + 2 * 14 + 1


CONVOLUTIONS = 11 + 4 * 7 + 4 + 7 * 10 + 7 + 3 * 10


def test_moving_averages_move_by_the_update_ops():
    placeholder = images(8, 8)
    logits = models.build("se_resnext", placeholder, True, **TINY)
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    steps = [v for v in tf.global_variables() if v.op.name.endswith("/local_step")]
    assert len(updates) == 3 * len(steps) == 3 * (1 + 3 * 3)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        feeds = {placeholder: np.random.RandomState(0).standard_normal((4, 8, 8, 3))}
        session.run(logits, feeds)
        assert set(session.run(steps)) == {0.0}
        session.run(updates, feeds)
        assert set(session.run(steps)) == {1.0}
