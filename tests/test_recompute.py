"""Gradient checkpointing: the same gradients and averages, whatever the network, the towers and the strategy."""

import numpy as np
import pytest

from senet_tf1 import compat, config, graph, strategies, towers
from senet_tf1 import train as run
from senet_tf1.compat import tf
from senet_tf1.errors import ConfigError

RANDOM = np.random.RandomState(0)
IMAGES, LABELS = RANDOM.standard_normal((10, 16, 16, 3)).astype(np.float32), RANDOM.randint(0, 10, 10)
SMALL = {"arch": "se_resnext", "cardinality": 2, "depth": 4, "blocks": 1}


def train(replication, given, recompute):
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        tf.set_random_seed(1)
        batch = graph.Batch(tf.constant(IMAGES), tf.constant(LABELS, tf.int32))
        built = graph.training(config.resolve(dict(given, recompute=recompute)), batch, 10, replication)
        session.run(tf.global_variables_initializer())
        loss, norm, _ = session.run([built.loss, built.gradient_norm, built.update], {built.learning_rate: 0.1})
        names = [variable.op.name for variable in tf.global_variables()]
        convolutions = sum(op.type == "Conv2D" for op in tf.get_default_graph().get_operations())
        return loss, norm, dict(zip(names, session.run(tf.global_variables()))), convolutions


def assert_same(make, given, tolerance=1e-5):
    plain, again = train(make(), given, False), train(make(), given, True)
    np.testing.assert_allclose(again[:2], plain[:2], rtol=tolerance)
    assert list(again[2]) == list(plain[2])
    for name, value in plain[2].items():
        np.testing.assert_allclose(again[2][name], value, atol=tolerance * (1e-3 + np.abs(value).max()), err_msg=name)
    assert again[3] > plain[3]  # so it is not that nothing was recomputed


def test_se_resnext():
    assert_same(lambda: None, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["se_inception_v4", "se_inception_resnet_v2"])
def test_the_inception_networks(arch):
    assert_same(lambda: None, {"arch": arch}, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("sync", [False, True])
def test_on_two_towers(sync):
    assert_same(lambda: towers.Towers(["/cpu:0", "/cpu:1"], "/cpu:0"), dict(SMALL, sync_batch_norm=sync), 1e-4)


def test_under_mirrored_strategy():
    if compat.tensorflow_version() < "2":
        settings = config.resolve({"strategy": "mirrored", "recompute": True})
        with pytest.raises(ConfigError, match="--recompute with --strategy=mirrored: TensorFlow 1.15"):
            run._check_strategy(settings, ["/cpu:0"], None)
        return
    assert_same(lambda: strategies.mirrored(["/cpu:0", "/cpu:1"], "auto"), SMALL, 1e-4)
