"""Layers against NumPy and closed forms."""

import numpy as np
import pytest

from senet_tf1 import compat, layers, replicas
from senet_tf1.compat import tf


def _run(fetches, feeds=None, seed=0):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feeds)


def _convolution(x, kernel, strides, groups):
    """A grouped convolution with SAME padding, one output value at a time."""
    (batch, height, width, _), (size, _, part, filters) = x.shape, kernel.shape
    out_height, out_width = -(-height // strides), -(-width // strides)
    missing = [max((out - 1) * strides + size - side, 0) for out, side in ((out_height, height), (out_width, width))]
    before = [m // 2 for m in missing]
    padded = np.pad(x, [(0, 0)] + [(b, m - b) for b, m in zip(before, missing)] + [(0, 0)], mode="constant")
    result = np.zeros((batch, out_height, out_width, filters))
    for row in range(out_height):
        for column in range(out_width):
            window = padded[:, row * strides : row * strides + size, column * strides : column * strides + size]
            for number in range(filters):
                group = number // (filters // groups)
                channels_of_group = window[..., group * part : (group + 1) * part]
                result[:, row, column, number] = np.sum(channels_of_group * kernel[..., number], axis=(1, 2, 3))
    return result


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("strides", [1, 2])
def test_convolution_is_the_sum_over_each_window(groups, strides):
    x = np.random.RandomState(0).standard_normal((2, 5, 6, 8)).astype("float32")
    y = layers.conv2d(tf.constant(x), 4, 3, strides, groups=groups, name="c")
    kernel, found = _run([tf.trainable_variables()[0], y])
    assert kernel.shape == (3, 3, 8 // groups, 4)
    np.testing.assert_allclose(found, _convolution(x, kernel, strides, groups), atol=1e-5)


def test_split_and_concat_computes_what_the_grouped_kernel_does(monkeypatch):
    """Same variables, same numbers, forward and backward, whichever way the probe chooses."""
    x = tf.constant(np.random.RandomState(0).standard_normal((2, 6, 6, 8)).astype("float32"))
    results = []
    for way in (lambda *unused: False, compat.has_grouped_conv2d):
        monkeypatch.setattr(compat, "has_grouped_conv2d", way)
        with tf.variable_scope("one", reuse=tf.AUTO_REUSE):
            y = layers.conv2d(x, 16, 3, 2, groups=4)
        results.append([y] + tf.gradients(tf.reduce_sum(y**2), [x] + tf.trainable_variables()))
    assert [v.op.name for v in tf.trainable_variables()] == ["one/conv2d/kernel"]
    split, whole = _run(results)
    for a, b in zip(split, whole):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_the_probe_does_not_crash_and_agrees_with_what_is_known():
    on_cpu = compat.has_grouped_conv2d(tf.float32, "")
    assert on_cpu == (not compat.tensorflow_version().startswith("1."))


@pytest.mark.parametrize("channels,filters", [(6, 8), (8, 6)])
def test_groups_must_divide(channels, filters):
    with pytest.raises(ValueError, match="must both divide by groups=4"):
        layers.conv2d(tf.zeros([1, 4, 4, channels]), filters, 3, groups=4)


def test_channels_must_be_known():
    with pytest.raises(ValueError, match="number of channels"):
        layers.conv2d(tf.placeholder(tf.float32, [None, 4, 4, None]), 8, 3)
    with pytest.raises(ValueError, match="number of channels"):
        layers.dense(tf.placeholder(tf.float32), 8)


def test_dense_is_a_matrix_product_and_a_bias():
    x = np.random.RandomState(0).standard_normal((3, 5)).astype("float32")
    y = layers.dense(tf.constant(x), 4)
    kernel, bias = tf.trainable_variables()
    kernel, bias, found = _run([kernel, bias, y])
    np.testing.assert_allclose(found, x @ kernel, atol=1e-6)
    assert not bias.any()


class TestInitialValues:
    def test_glorot_limits_follow_from_one_branch(self):
        """Eight branches in one kernel start as eight separate kernels would (fan_out is a branch's)."""
        layers.conv2d(tf.zeros([1, 4, 4, 64]), 512, 1, branches=8, name="branches")
        layers.conv2d(tf.zeros([1, 4, 4, 512]), 512, 3, groups=8, name="grouped")
        layers.conv2d(tf.zeros([1, 4, 4, 64]), 512, 1, name="plain")
        branches, grouped, plain = _run(tf.trainable_variables())
        for kernel, fans in ((branches, 64 + 64), (grouped, 9 * 64 + 9 * 64), (plain, 64 + 512)):
            limit = np.sqrt(6.0 / fans)
            assert 0.99 * limit < np.abs(kernel).max() <= limit
            np.testing.assert_allclose(kernel.std(), limit / np.sqrt(3), rtol=0.02)

    def test_they_follow_from_seed_and_name_alone(self):
        def kernel(seed, name, ops_before):
            with tf.Graph().as_default():
                tf.set_random_seed(seed)
                for _ in range(ops_before):
                    tf.random.uniform([])
                layers.dense(tf.zeros([1, 4]), 3, use_bias=False, name=name)
                return _run(tf.trainable_variables()[0])

        np.testing.assert_array_equal(kernel(1, "a", 0), kernel(1, "a", 5))
        assert np.abs(kernel(1, "a", 0) - kernel(2, "a", 0)).max() > 0.1
        assert np.abs(kernel(1, "a", 0) - kernel(1, "b", 0)).max() > 0.1

    def test_they_are_the_same_on_every_tensorflow(self):
        tf.set_random_seed(3)
        layers.dense(tf.zeros([1, 4]), 2, use_bias=False, name="d")
        expected = [[-0.423414, 0.704113], [-0.279255, 0.322561], [-0.309865, -0.2716], [-0.345757, -0.32822]]
        np.testing.assert_allclose(_run(tf.trainable_variables()[0]), expected, atol=1e-5)


class TestBatchNorm:
    X = [np.random.RandomState(seed).standard_normal((4, 3, 3, 2)).astype("float32") * 2 + 1 for seed in range(3)]

    @staticmethod
    def _graph(is_training):
        x = tf.placeholder(tf.float32, [None, None, None, 2])
        y = layers.batch_norm(x, is_training)
        moves = [op for moments in tf.get_collection(layers.MOMENTS) for op in layers.move_averages(moments)]
        return x, y, moves, {v.op.name.split("/")[-1]: v for v in tf.global_variables()}

    def test_normalises_by_the_batch(self):
        x, y, _, _ = self._graph(True)
        mean, variance = self.X[0].mean((0, 1, 2)), self.X[0].var((0, 1, 2))
        np.testing.assert_allclose(_run(y, {x: self.X[0]}), (self.X[0] - mean) / np.sqrt(variance + 1e-3), atol=1e-5)

    def test_averages_after_three_updates(self):
        """The mean is debiased as Adam's moments are; the variance is unbiased (n - 1) and not debiased."""
        x, y, moves, variables = self._graph(True)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(variables["moving_mean"].assign([5.0, -5.0]))  # must leave no trace
            for batch in self.X:
                session.run([y] + moves, {x: batch})
            found = session.run(variables)
        biased, variance = np.zeros(2), np.ones(2)
        for batch in self.X:
            biased = 0.9 * biased + 0.1 * batch.mean((0, 1, 2), dtype=np.float64)
            variance = 0.9 * variance + 0.1 * batch.reshape(-1, 2).var(0, ddof=1, dtype=np.float64)
        np.testing.assert_allclose(found["moving_mean"], biased / (1 - 0.9**3), rtol=1e-5)
        np.testing.assert_allclose(found["moving_variance"], variance, rtol=1e-5)
        assert found["local_step"] == 3

    def test_inference_uses_the_averages_and_moves_nothing(self):
        x, y, moves, variables = self._graph(False)
        assert not moves
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run([variables["moving_mean"].assign([1.0, 2.0]), variables["moving_variance"].assign([4.0, 9.0])])
            found = session.run(y, {x: self.X[0]})
        expected = (self.X[0] - [1.0, 2.0]) / np.sqrt(np.array([4.0, 9.0]) + 1e-3)
        np.testing.assert_allclose(found, expected, atol=1e-5)

    def test_bool_tensor_does_either(self):
        flag = tf.placeholder(tf.bool, [])
        x, y, moves, variables = self._graph(flag)
        with tf.variable_scope("", reuse=True):
            trained, inferred = layers.batch_norm(x, True), layers.batch_norm(x, False)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run([y] + moves, {x: self.X[0], flag: True})
            moved = session.run(variables)
            for value, other in ((True, trained), (False, inferred)):
                a, b = session.run([y, other], {x: self.X[1], flag: value})
                np.testing.assert_array_equal(a, b)
            session.run([y] + moves, {x: self.X[1], flag: False})
            for name, value in session.run(variables).items():
                np.testing.assert_array_equal(value, moved[name])
        assert moved["local_step"] == 1


class TestDropout:
    def test_drops_a_share_and_scales_the_rest(self):
        dropped = _run(layers.dropout(tf.ones([100, 100]), 0.2, True))
        assert set(np.unique(dropped)) == {0.0, np.float32(1.25)}
        assert abs((dropped == 0).mean() - 0.2) < 0.02

    def test_nothing_in_inference_or_at_rate_0(self):
        x = tf.ones([3, 3])
        assert layers.dropout(x, 0.5, False) is x
        assert layers.dropout(x, 0.0, True) is x
        np.testing.assert_array_equal(_run(layers.dropout(x, 0.5, tf.constant(False))), np.ones((3, 3)))

    def test_the_draw_follows_from_the_global_step(self):
        step = tf.train.create_global_step()
        dropped = layers.dropout(tf.ones([50]), 0.5, True)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            first, again = session.run(dropped), session.run(dropped)
            session.run(step.assign_add(1))
            later = session.run(dropped)
        np.testing.assert_array_equal(first, again)
        assert (first != later).any()


def test_pooling():
    x = np.arange(16, dtype="float32").reshape(1, 4, 4, 1)
    largest, mean, everything = _run([layers.max_pool(x), layers.avg_pool(x, 2, 2), layers.global_avg_pool(x)])
    assert largest.reshape(-1).tolist() == [10.0]
    assert mean.reshape(-1).tolist() == [2.5, 4.5, 10.5, 12.5]
    assert everything.tolist() == [[7.5]]


class TestSyncBatchNorm:
    """Forward and backward against float64; examples spread unevenly over replicas, one with a lent example only."""

    @pytest.mark.parametrize("sizes", [[7], [4, 3], [3, 2, 2], [6, 1, 0]])
    def test_is_batch_norm_of_the_joint_batch(self, sizes):
        random = np.random.RandomState(0)
        x, r = (random.standard_normal((7, 4, 4, 5)) * 2 + 3 for _ in range(2))
        x, r = x.astype(np.float32), r.astype(np.float32)
        outputs, gradients, first = [], [], 0
        for index, size in enumerate(sizes):
            weight = tf.constant(float(size > 0))
            replica = replicas.Replica(index, len(sizes), tf.constant(first), tf.constant(7), weight, True)
            with tf.device("/cpu:%d" % index), tf.variable_scope("", reuse=index > 0), replicas.building(replica):
                own = tf.constant(x[first : first + size] if size else x[:1])
                y = layers.batch_norm(own, True)
                loss = tf.reduce_sum(y * (r[first : first + size] if size else r[:1])) * weight
                gradients.append(tf.gradients(loss, own)[0][:size])
                outputs.append(y[:size])
            first += size
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": len(sizes)})) as session:
            session.run(tf.global_variables_initializer())
            outputs, gradients, moments = session.run([outputs, gradients, tf.get_collection(layers.MOMENTS)[0][3:5]])

        axes = (0, 1, 2)
        mean, variance = x.astype(np.float64).mean(axes), x.astype(np.float64).var(axes)
        deviation = np.sqrt(variance + layers.BATCH_NORM_EPSILON)
        y = (x - mean) / deviation
        dx = (r - r.mean(axes, dtype=np.float64) - y * (r * y).mean(axes)) / deviation
        np.testing.assert_allclose(np.concatenate(outputs), y, atol=2e-6)
        np.testing.assert_allclose(np.concatenate(gradients), dx, atol=2e-6 * np.abs(dx).max())
        np.testing.assert_allclose(moments, [mean, variance], rtol=1e-5)
