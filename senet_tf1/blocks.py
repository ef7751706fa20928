"""Blocks shared by several networks."""

from senet_tf1 import layers
from senet_tf1.compat import tf


def squeeze_excite(x: tf.Tensor, reduction_ratio: int, use_bias: bool, name: str = "se") -> tf.Tensor:
    """Global average pool, FC, ReLU, FC, sigmoid, and `x` scaled by the result (Hu et al. 2018, figure 2).

    Args:
      x: [batch, height, width, channels].
      reduction_ratio: the first FC has channels // reduction_ratio units.
      use_bias: whether the two FCs have biases.
      name: the variable scope, with `fc1` and `fc2` in it.

    Returns:
      [batch, height, width, channels].

    Raises:
      ValueError: the first FC would have no unit.
    """
    channels = layers.static_channels(x)
    if not 1 <= reduction_ratio <= channels:
        raise ValueError("reduction_ratio=%r: expected 1 to %d, the number of channels" % (reduction_ratio, channels))
    with tf.variable_scope(name):
        squeeze = layers.global_avg_pool(x)
        excitation = tf.nn.relu(layers.dense(squeeze, channels // reduction_ratio, use_bias, name="fc1"))
        excitation = tf.nn.sigmoid(layers.dense(excitation, channels, use_bias, name="fc2"))
        return x * excitation[:, tf.newaxis, tf.newaxis, :]


def conv_relu(x, filters, kernel_size, strides=1, padding="SAME", name="conv"):
    """Convolution with bias and ReLU, without batch norm: the unit of the original's inception blocks."""
    return tf.nn.relu(layers.conv2d(x, filters, kernel_size, strides, padding, use_bias=True, name=name))
