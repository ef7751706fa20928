"""Evaluation counts every example once, whatever the batch size; figures by hand."""

import numpy as np
import pytest

from senet_tf1 import data, evaluate, graph
from senet_tf1.compat import tf
from senet_tf1.data.pipeline import Standardisation

SCALE = Standardisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def network():
    """Logits that are the image's first ten values."""
    images, labels = tf.placeholder(tf.float32, [None, 2, 2, 3]), tf.placeholder(tf.int32, [None])
    return graph._predictions(images, labels, tf.reshape(images, [-1, 12])[:, :10])


def split(count):
    random = np.random.RandomState(0)
    images = random.randint(0, 6, (count, 2, 2, 3)).astype(np.uint8)
    return data.Split(images, random.randint(0, 9, count).astype(np.int32))


@pytest.mark.parametrize("batch_size", [1, 3, 23, 50])
def test_figures_do_not_depend_on_the_batch_size(batch_size):
    examples = split(23)
    with tf.Session() as session:
        result = evaluate.evaluate(session, network(), examples, SCALE, batch_size)
    logits = examples.images.reshape(23, 12)[:, :10].astype(np.float64)
    order = np.argsort(-logits, axis=1, kind="stable")
    ranks = np.array([list(row).index(label) for row, label in zip(order, examples.labels)])
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(23), examples.labels]
    assert result.examples == 23
    assert result.loss == pytest.approx(losses.mean(), rel=1e-6)
    assert result.accuracy == pytest.approx(np.mean(ranks == 0))
    assert result.top5 == pytest.approx(np.mean(ranks < 5))
    assert result.class_examples.tolist() == np.bincount(examples.labels, minlength=10).tolist()
    assert result.class_correct.sum() == np.sum(ranks == 0)


def test_equal_logits_are_no_free_points():
    """Of equal logits the lowest class is the answer, as with argmax: constant logits are right for class 0 only."""
    examples = data.Split(np.zeros((10, 2, 2, 3), np.uint8), np.arange(10, dtype=np.int32))
    with tf.Session() as session:
        result = evaluate.evaluate(session, network(), examples, SCALE, 4)
    assert (result.accuracy, result.top5) == (0.1, 0.5)


def test_a_stop_gives_no_result():
    with tf.Session() as session:
        assert evaluate.evaluate(session, network(), split(5), SCALE, 2, stop=lambda: True) is None


def test_the_table_has_a_line_a_class():
    result = evaluate.Result(1.25, 0.5, 0.9, 4, np.array([1, 1, 0]), np.array([2, 2, 0]))
    lines = evaluate.table(result, ["cat", "dog", "ship"]).splitlines()
    assert lines[1].split() == ["cat", "1", "2", "0.5000"] and lines[3].split() == ["ship", "0", "0", "-"]
    assert lines[4] == "loss 1.2500  top-1 0.5000  top-5 0.9000  examples 4"
    assert result.record(7, 0.5)["split"] == "test"
