"""Towers: any number of them is one device, on batches that divide and on those that don't."""

import functools

import numpy as np
import pytest

from senet_tf1 import compat, config, devices, graph, replicas, strategies, towers
from senet_tf1.compat import tf
from senet_tf1.errors import ConfigError

TINY = {"cardinality": 2, "depth": 4, "blocks": 1, "dropout_rate": 0.3, "dataset": "synthetic", "seed": 3,
        "freeze_batch_norm": True}  # fmt: skip
RANDOM = np.random.RandomState(0)
IMAGES = RANDOM.standard_normal((101, 4, 4, 3)).astype(np.float32)
LABELS = RANDOM.randint(0, 10, 101)
CPUS = tf.ConfigProto(device_count={"CPU": 3})


def build(number, **changes):
    replication = towers.Towers(["/cpu:%d" % i for i in range(number)], "/cpu:0")
    tf.set_random_seed(3)
    batch = graph.Batch(tf.constant(IMAGES), tf.constant(LABELS, tf.int32))
    return graph.training(config.resolve(dict(TINY, **changes)), batch, 10, replication)


@functools.lru_cache(maxsize=None)
def train(number, steps=1, examples=101, **changes):
    """Loss, gradient norm, and every variable by name, after some steps on the first examples."""
    with tf.Graph().as_default(), tf.Session(config=CPUS) as session:
        built = build(number, **changes)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        feeds = {built.batch.images: IMAGES[:examples], built.batch.labels: LABELS[:examples]}
        feeds[built.learning_rate] = 0.1
        for _ in range(steps):
            fetches = [built.loss, built.accuracy, built.gradient_norm, built.update]
            figures = session.run(fetches, feeds)[:3]
        variables = tf.global_variables()
        return figures, dict(zip([variable.op.name for variable in variables], session.run(variables)))


class TestOneDevice:
    """With batch norm in inference mode nothing that an example computes depends on the others."""

    @pytest.mark.parametrize("number", [2, 3])
    def test_same_gradients_and_the_same_weights_after_five_steps(self, number):
        for steps in (1, 5):
            (loss, accuracy, norm), one = train(1, steps)
            figures, many = train(number, steps)
            np.testing.assert_allclose(figures, (loss, accuracy, norm), rtol=1e-5)
            assert list(many) == list(one)  # and so a checkpoint of one is a checkpoint of the other
            # After the first step the slots are the gradients.
            # (TF 1.15 adds up a bias's gradient in one long sum; its rounding alone is 1.2e-6 of the largest entry.)
            exact = 1e-6 if compat.tensorflow_version() >= "2" else 2e-6
            kinds = (("Momentum",), exact if steps == 1 else 1e-5), (("kernel", "gamma", "beta"), 1e-6)
            for suffixes, tolerance in kinds:
                names = [name for name in one if name.endswith(suffixes)]
                largest = max(np.abs(one[name]).max() for name in names)
                for name in names:
                    np.testing.assert_allclose(many[name], one[name], atol=tolerance * largest, rtol=0, err_msg=name)

    @pytest.mark.parametrize("examples", [1, 2, 4])
    def test_a_batch_smaller_than_the_number_of_towers(self, examples):
        figures, one = train(1, examples=examples)
        found, many = train(3, examples=examples)
        np.testing.assert_allclose(found, figures, rtol=1e-5)
        for name, value in one.items():
            np.testing.assert_allclose(many[name], value, atol=1e-6, err_msg=name)

    def test_every_tower_takes_the_size_that_the_first_has_and_no_tower_gets_nothing(self):
        with tf.Session() as session:
            for total in range(1, 12):
                spans = session.run([replicas.span(tf.constant(total), 4, part, 1) for part in range(4)])
                offsets = session.run([replicas.offset(tf.constant(total), 4, part) for part in range(5)])
                assert all(first < last <= total for first, last in spans)
                assert (offsets[0], offsets[-1]) == (0, total)
                sizes = np.diff(offsets)
                assert sizes.max() - sizes.min() <= 1 and list(sizes) == sorted(sizes, reverse=True)


class TestAveraging:
    """`loss = x * A * B`, by hand: gradients are B * mean(x) and A * mean(x), of all examples alike."""

    A, B, X = 1.5, -2.0, np.array([1, 2, 3, 4, 10], np.float32)

    def network(self, x, unused_is_training, unused_classes):
        a = tf.get_variable("a", [], initializer=tf.constant_initializer(self.A), use_resource=True)
        b = tf.get_variable("b", [], initializer=tf.constant_initializer(self.B), use_resource=True)
        tf.get_variable("unused", [2], initializer=tf.constant_initializer(7.0), use_resource=True)
        return tf.reshape(x, [-1, 1]) * a * b  # logits, and below they are the losses too

    @pytest.mark.parametrize("number", [1, 2, 3])
    @pytest.mark.parametrize("micro_batches", [1, 2])
    @pytest.mark.parametrize("kind", ["towers", "auto", "hierarchical", "one_device"])
    def test_two_steps_by_hand(self, monkeypatch, number, micro_batches, kind):
        settings = config.resolve({"weight_decay": 0.25, "accumulation_steps": micro_batches})
        settings = settings._replace(clip_value=3.0)
        monkeypatch.setitem(graph.models._NETWORKS, "se_resnext", self.network)
        monkeypatch.setattr(graph, "_losses", lambda logits, unused_labels: logits[:, 0])
        monkeypatch.setattr(graph, "_ranks", lambda logits, labels: tf.zeros_like(labels))
        monkeypatch.setattr(config.Config, "model_options", lambda self: {})
        cpus = ["/cpu:%d" % i for i in range(number)]
        if kind == "hierarchical" and number % 2:
            with pytest.raises(ConfigError, match="over two halves of the replicas, and there are %d" % number):
                strategies.mirrored(cpus, kind)
            return
        replication = towers.Towers(cpus) if kind == "towers" else strategies.mirrored(cpus, kind)
        images, labels, total = tf.constant(self.X.reshape(5, 1, 1, 1)), tf.zeros([5], tf.int32), tf.constant(5)
        built = graph.training(settings, graph.Batch(images, labels, total, tf.constant(0)), 10, replication)
        trained = [variable for v in tf.trainable_variables() for variable in replication.copies(v)]
        a, b, slots = self.A, self.B, np.zeros(2)
        assert built.without_gradient == ["unused"]
        with tf.Session(config=CPUS) as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            for _ in range(2):
                for feeds in self.micro_batches(built, micro_batches, number)[:-1]:
                    session.run(built.accumulate, feeds)
                feeds = self.micro_batches(built, micro_batches, number)[-1]
                feeds[built.learning_rate] = 0.1
                loss, norm, _ = session.run([built.loss, built.gradient_norm, built.update], feeds)
                gradient = np.array([b, a]) * 4.0 + 0.25 * np.array([a, b])
                np.testing.assert_allclose([loss, norm], [a * b * 4.0, np.hypot(*gradient)], rtol=1e-5)
                gradient *= 3.0 / max(3.0, np.hypot(*gradient))
                slots = 0.9 * slots + gradient
                a, b = np.array([a, b]) - 0.1 * (gradient + 0.9 * slots)
                for variable, value in zip(trained, session.run(trained)):
                    expected = {"a": a, "b": b, "unused": 7}[variable.op.name.split("/")[0]]
                    np.testing.assert_allclose(value, expected, rtol=1e-5)

    def micro_batches(self, built, count, replicas):
        """Feeds: all five examples at once, or the first three and the last two (with one replica; so on with more)."""
        parts = count * replicas
        sizes = [5 // parts + (part < 5 % parts) for part in range(parts)]
        ends = np.cumsum([sum(sizes[part : part + replicas]) for part in range(0, parts, replicas)])
        feeds = []
        for number, (first, last) in enumerate(zip([0] + list(ends[:-1]), ends)):
            first = min(first, 4)
            own = self.X[first : max(last, first + 1)].reshape(-1, 1, 1, 1)
            labels = np.zeros(len(own), np.int32)
            feeds.append({built.batch.images: own, built.batch.labels: labels, built.batch.part: number * replicas})
        return feeds


class TestPlacement:
    def test_variables_live_on_the_variable_device_and_towers_on_their_own(self):
        build(2)
        kernels = [v for v in tf.trainable_variables() if v.op.name.endswith("/kernel")]
        assert {v.device for v in kernels} == {"/device:CPU:0"}
        convolutions = [op for op in tf.get_default_graph().get_operations() if op.name.endswith("/Conv2D")]
        assert {op.device for op in convolutions if op.name.startswith("tower_1/")} == {"/device:CPU:1"}

    def test_more_gpus_than_there_are(self, monkeypatch):
        monkeypatch.setattr(devices.compat, "gpus", lambda: ["/physical_device:GPU:0", "/physical_device:GPU:1"])
        with pytest.raises(ConfigError, match="--num_gpus=3: TensorFlow sees 2: /physical_device:GPU:0, /phys"):
            devices.choose("auto", 3, print)

    def test_without_gpus_cpu_devices_stand_in_and_it_is_said(self, monkeypatch):
        monkeypatch.setattr(devices.compat, "gpus", list)
        lines = []
        assert devices.choose("auto", 2, lines.append) == ["/cpu:0", "/cpu:1"]
        assert lines == ["device: /cpu:0, /cpu:1 (no GPU found)"]
        with pytest.raises(ConfigError, match="--variable_device=gpu0: the towers are on /cpu:0"):
            devices.for_variables("gpu0", ["/cpu:0"])
