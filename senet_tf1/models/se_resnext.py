"""SE-ResNeXt for 32 x 32 images, as the original script builds it.

[1] Xie et al., "Aggregated Residual Transformations for Deep Neural Networks", CVPR 2017.
[2] Hu et al., "Squeeze-and-Excitation Networks", CVPR 2018.

The original holds each block's branches (1x1, batch norm, ReLU, 3x3, batch norm, ReLU) as separate kernels. Here they
are one 1x1 kernel, one grouped 3x3 kernel and one batch norm each, which computes the same ([1], figure 3) and is
four times as fast. Deviations from [1] and [2] that the original makes and this keeps: every branch is `depth` wide in
every stage; a shortcut that changes shape is average-pooled and zero-padded instead of projected.
"""

from senet_tf1 import layers, recompute
from senet_tf1.blocks import squeeze_excite
from senet_tf1.compat import tf

STAGE_FILTERS = (64, 128, 256)


def se_resnext(
    images: tf.Tensor,
    is_training: layers.Training,
    num_classes: int = 10,
    cardinality: int = 8,
    depth: int = 64,
    blocks: int = 3,
    reduction_ratio: int = 4,
    dropout_rate: float = 0.0,
) -> tf.Tensor:
    """SE-ResNeXt: stem, three stages of `blocks` blocks, global average pool, FC.

    Args:
      images: float [batch, height, width, 3], standardised; any height and width.
      is_training: bool, or bool tensor [].
      num_classes: number of logits.
      cardinality: branches of a block.
      depth: filters of a branch.
      blocks: blocks of a stage.
      reduction_ratio: of the squeeze-and-excitation.
      dropout_rate: before the last FC; the original has none.

    Returns:
      Logits [batch, num_classes].
    """
    with tf.variable_scope("stem"):
        x = layers.conv2d(images, 64, 3, name="conv")
        x = tf.nn.relu(layers.batch_norm(x, is_training, name="bn"))
    for stage, filters in enumerate(STAGE_FILTERS, 1):
        with tf.variable_scope("stage%d" % stage):
            for block in range(1, blocks + 1):
                with tf.variable_scope("block%d" % block):
                    strides = 2 if filters == 2 * layers.static_channels(x) else 1
                    sizes = (filters, strides, is_training, cardinality, depth, reduction_ratio)
                    x = recompute.block(lambda x, sizes=sizes: _block(x, *sizes), x)
    with tf.variable_scope("head"):
        x = layers.dropout(layers.global_avg_pool(x), dropout_rate, is_training)
        return layers.dense(x, num_classes, use_bias=False, name="fc")


def _block(x, filters, strides, is_training, cardinality, depth, reduction_ratio):
    residual = _residual(x, filters, strides, is_training, cardinality, depth, reduction_ratio)
    return tf.nn.relu(residual + _shortcut(x, filters, strides))


def _residual(x, filters, strides, is_training, cardinality, depth, reduction_ratio):
    """1x1 and grouped 3x3 convolution (`cardinality` branches of `depth` filters), 1x1, squeeze-and-excitation."""
    width = cardinality * depth
    x = layers.conv2d(x, width, 1, branches=cardinality, name="conv1")
    x = tf.nn.relu(layers.batch_norm(x, is_training, name="bn1"))
    x = layers.conv2d(x, width, 3, strides, groups=cardinality, name="conv2")
    x = tf.nn.relu(layers.batch_norm(x, is_training, name="bn2"))
    x = layers.conv2d(x, filters, 1, name="conv3")
    x = layers.batch_norm(x, is_training, name="bn3")
    return squeeze_excite(x, reduction_ratio, use_bias=False)


def _shortcut(x, filters, strides):
    """The identity; where the shape changes, an average pool and zero channels on both sides (half of them each)."""
    if strides == 1:
        return x
    missing = filters - layers.static_channels(x)
    x = layers.avg_pool(x, 2, 2)
    return tf.pad(x, [[0, 0], [0, 0], [0, 0], [missing // 2, missing - missing // 2]])
