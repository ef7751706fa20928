"""Batch-norm statistics of several replicas and micro-batches, joined into those of the whole batch.

With c the moving mean, n_i, m_i and v_i a part's count, mean and (population) variance, each part contributes

    [n_i, n_i (m_i - c), n_i (v_i + (m_i - c)^2)]

which add up, over towers, micro-batches and workers, to what the joint mean and variance follow from. The shift by c,
which is the same everywhere, keeps the variance exact where the mean is large.
"""

from typing import List

from senet_tf1.compat import tf
from senet_tf1.layers import Moments


def pack(moments: List[Moments], weight: tf.Tensor) -> List[tf.Tensor]:
    """What one replica contributes, as vectors; `weight` is 1, or 0 for a replica that does not count."""
    vectors = []
    for part in moments:
        count, shift = part.count * weight, part.mean - part.moving_mean.read_value()
        vectors += [count[tf.newaxis], count * shift, count * (part.variance + tf.square(shift))]
    return vectors


def unpack(total: tf.Tensor, moments: List[Moments]) -> List[Moments]:
    """The joint moments, from the sum of all replicas' packed vectors laid end to end.

    Args:
      total: float32 [sum over the batch norms of 1 + 2 * channels].
      moments: the batch norms, in the order in which they were packed.
    """
    if not moments:
        return []
    channels = [part.moving_mean.shape.as_list()[0] for part in moments]
    parts = tf.split(total, [size for count in channels for size in (1, count, count)])
    joint = []
    for number, part in enumerate(moments):
        count, shift, squares = parts[3 * number][0], *parts[3 * number + 1 : 3 * number + 3]
        shift = shift / count
        mean = part.moving_mean.read_value() + shift
        variance = tf.maximum(squares / count - tf.square(shift), 0.0)
        joint.append(part._replace(mean=mean, variance=variance, count=count))
    return joint
