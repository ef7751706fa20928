"""The update: what moves, by how much, once; micro-batches that add up; batch-norm averages of the whole batch."""

import functools

import numpy as np
import pytest

from senet_tf1 import config, graph, towers
from senet_tf1.compat import tf
from senet_tf1.data import pipeline

TINY = {"cardinality": 2, "depth": 4, "blocks": 1, "dataset": "synthetic", "seed": 3, "dropout_rate": 0.3}
RANDOM = np.random.RandomState(0)
IMAGES, LABELS = RANDOM.randint(0, 256, (50, 8, 8, 3)).astype(np.uint8), RANDOM.randint(0, 10, 50).astype(np.int32)
SCALE = pipeline.standardisation(IMAGES)
CPUS = tf.ConfigProto(device_count={"CPU": 3})


@functools.lru_cache(maxsize=None)
def train(number, updates=3, **changes):
    """[(loss, accuracy, norm)], and every variable, after some updates of 20, 20 and 10 examples."""
    with tf.Graph().as_default(), tf.Session(config=CPUS) as session:
        tf.set_random_seed(3)
        settings = config.resolve(dict(TINY, **changes))
        replication = towers.Towers(["/cpu:%d" % i for i in range(number)], "/cpu:0")
        share = pipeline.Share(settings.accumulation_steps, replicas=number)
        pipe = pipeline.training_batches((8, 8, 3), 50, settings.update_examples(), 0, True, SCALE, share)
        built = graph.training(settings, graph.Batch(*pipe[:4]), 10, replication)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(pipe.initializer, pipe.feeds(IMAGES, LABELS, 0))
        figures = []
        for _ in range(updates):
            for _ in range(settings.accumulation_steps - 1):
                session.run(built.accumulate)
            fetches = [built.loss, built.accuracy, built.gradient_norm, built.update]
            figures.append(session.run(fetches, {built.learning_rate: 0.1})[:3])
        variables = tf.global_variables()
        return figures, dict(zip([variable.op.name for variable in variables], session.run(variables)))


def assert_same(one, other, tolerance=1e-5):
    np.testing.assert_allclose(other[0], one[0], rtol=tolerance)
    assert list(one[1]) == list(other[1])
    for name, value in one[1].items():
        np.testing.assert_allclose(other[1][name], value, atol=tolerance * (1 + np.abs(value).max()), err_msg=name)


class TestAccumulation:
    """Micro-batches are the same examples, flips, crops and dropout as one batch so many times as large."""

    @pytest.mark.parametrize("steps,number", [(4, 1), (2, 3)])
    def test_is_a_larger_batch(self, steps, number):
        whole = train(1, batch_size=20, freeze_batch_norm=True)
        parts = train(number, batch_size=20 // steps, accumulation_steps=steps, freeze_batch_norm=True)
        assert parts[1]["global_step"] == 3
        assert_same(whole, parts)

    def test_with_more_micro_batches_than_examples_in_the_last_batch(self):
        whole = train(1, batch_size=20, freeze_batch_norm=True)
        assert_same(whole, train(1, batch_size=1, accumulation_steps=20, freeze_batch_norm=True))

    def test_schedules_and_epochs_count_updates(self):
        settings = config.resolve({"batch_size": 32, "accumulation_steps": 4})
        assert settings.steps_per_epoch(50000) == 391
        assert settings.base_learning_rate() == 0.1
        settings = config.resolve({"batch_size": 64, "accumulation_steps": 4, "scale_learning_rate": "linear"})
        assert settings.base_learning_rate() == 0.2


class TestBatchNormAverages:
    """Of the stem's batch norm, whose input depends on the images and the first kernel alone, after one update."""

    def moments(self, number, accumulation_steps, part):
        """NumPy's mean and unbiased variance of the convolution over the examples of some parts, joined."""
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(3)
            pipe = pipeline.training_batches((8, 8, 3), 50, 20, 0, True, SCALE)
            built = graph.training(config.resolve(TINY), graph.Batch(*pipe[:4]), 10)
            session.run(tf.global_variables_initializer())
            session.run(pipe.initializer, pipe.feeds(IMAGES, LABELS, 0))
            values = session.run("stem/conv/Conv2D:0").astype(np.float64)
        assert built.batch.images.shape.as_list() == [None, 8, 8, 3]
        values = values[part].reshape(-1, values.shape[-1])
        return values.mean(axis=0), values.var(axis=0, ddof=1)

    @pytest.mark.parametrize("number,accumulation_steps", [(3, 1), (2, 2)])
    @pytest.mark.parametrize("bn_update", ["mean", "first"])
    def test_move_once_by_the_joint_statistics_or_the_first_part_s(self, number, accumulation_steps, bn_update):
        _, found = train(
            number, 1, batch_size=20 // accumulation_steps, accumulation_steps=accumulation_steps, bn_update=bn_update
        )
        parts = number * accumulation_steps
        part = slice(None) if bn_update == "mean" else slice(20 // parts + (20 % parts > 0))
        mean, variance = self.moments(number, accumulation_steps, part)
        # The mean is zero-debiased: after one update it is the batch's own. The variance starts at 1 and decays by 0.9.
        np.testing.assert_allclose(found["stem/bn/moving_mean"], mean, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found["stem/bn/moving_variance"], 0.9 + 0.1 * variance, rtol=1e-5)
        assert found["stem/bn/local_step"] == 1

    def test_stay_when_batch_norm_is_frozen(self):
        _, found = train(2, batch_size=20, freeze_batch_norm=True)
        assert not found["stem/bn/moving_mean"].any() and found["stem/bn/local_step"] == 0

    @pytest.mark.parametrize("number,accumulation_steps", [(3, 1), (2, 2)])
    def test_and_nothing_moves_on_a_step_that_is_not_finite(self, number, accumulation_steps):
        """A NaN in one slice of one micro-batch holds everything still, and the next update starts afresh."""
        with tf.Graph().as_default(), tf.Session(config=CPUS) as session:
            settings = config.resolve(dict(TINY, batch_size=8, accumulation_steps=accumulation_steps))
            replication = towers.Towers(["/cpu:%d" % i for i in range(number)], "/cpu:0")
            images = np.random.RandomState(1).standard_normal((8, 8, 8, 3)).astype(np.float32)
            total, part = tf.constant(8 * accumulation_steps), tf.constant(0)
            batch = graph.Batch(tf.constant(images), tf.zeros([8], tf.int32), total, part)
            built = graph.training(settings, batch, 10, replication)
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])

            def update(images):
                for _ in range(accumulation_steps - 1):
                    session.run(built.accumulate, {built.batch.images: images})
                feeds = {built.batch.images: images, built.learning_rate: 0.1}
                # The norm too: ReLU can turn a NaN into 0, and the loss is finite then.
                return np.isfinite(session.run([built.loss, built.gradient_norm, built.update], feeds)[:2]).all()

            assert update(images)
            variables = tf.global_variables() + tf.local_variables()
            before = session.run(variables)
            bad = images.copy()
            bad[0, 0, 0, 0] = np.nan
            assert not update(bad)
            for variable, old, new in zip(variables, before, session.run(variables)):
                np.testing.assert_array_equal(new, old, err_msg=variable.op.name)
            assert update(images)
            assert session.run(built.global_step) == 2


class TestSyncBatchNorm:
    """Towers that normalise together are one device in training mode too.

    Against exact float64 a network's gradient in float32 is off by about 1e-3 in single entries, one device's as well:
    batch norm makes a kernel's gradient a small difference of large sums. So the layer is proved tightly
    (test_layers), and here the whole network to that.
    """

    @pytest.mark.parametrize("number", [3])
    def test_is_one_device(self, number):
        one = train(1, 1, batch_size=20, weight_decay=0.0)
        many = train(number, 1, batch_size=20, weight_decay=0.0, sync_batch_norm=True)
        np.testing.assert_allclose(many[0], one[0], rtol=1e-4)
        for name, value in one[1].items():
            tolerance = 2e-3 if name.endswith("/Momentum") else 1e-5
            np.testing.assert_allclose(
                many[1][name], value, atol=tolerance * max(1e-3, np.abs(value).max()), rtol=1e-4, err_msg=name
            )

    def test_differs_from_towers_on_their_own(self):
        alone, together = train(3, 1, batch_size=20), train(3, 1, batch_size=20, sync_batch_norm=True)
        assert abs(alone[0][0][0] - together[0][0][0]) > 1e-4
