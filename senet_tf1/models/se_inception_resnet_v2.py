"""SE-Inception-ResNet-v2 as the original script builds it: squeeze-and-excitation after every block and reduction.

Paper and deviations: see `inception.py`.
"""

from senet_tf1 import layers, recompute
from senet_tf1.blocks import conv_relu, squeeze_excite
from senet_tf1.compat import tf
from senet_tf1.models import inception

SE_POSITIONS = ("block", "residual")
RESIDUAL_SCALE = 0.1


def se_inception_resnet_v2(
    images: tf.Tensor,
    is_training: layers.Training,
    num_classes: int = 10,
    reduction_ratio: int = 4,
    dropout_rate: float = 0.2,
    se_position: str = "block",
    conv_bias: float = 0.0,
) -> tf.Tensor:
    """Stem, 5 blocks A, reduction A, 10 blocks B, reduction B, 5 blocks C, global average pool, dropout, FC.

    Args:
      images: float [batch, height, width, 3], standardised; at least 11 x 11 pixels.
      is_training: bool, or bool tensor [].
      num_classes: number of logits.
      reduction_ratio: of the squeeze-and-excitations.
      dropout_rate: before the FC.
      se_position: "block", on the block's output as the original does, or "residual", on the residual branch before
        it is added, as Hu et al. 2018 (figure 3) do. The variables are the same.
      conv_bias: initial value of the convolutions' biases; 0 is the original's.

    Returns:
      Logits [batch, num_classes].

    Raises:
      ValueError: the images are too small, or an option is out of its range.
    """
    if se_position not in SE_POSITIONS:
        raise ValueError("se_position=%r: expected one of %s" % (se_position, ", ".join(SE_POSITIONS)))

    def blocks(kind, count, paths, x):
        for block in range(1, count + 1):
            with tf.variable_scope("block_%s%d" % (kind, block)):
                x = _residual_block(paths, x, is_training, reduction_ratio, se_position)
        return x

    with inception.conv_bias_scope(conv_bias):
        x = inception.stem(inception.pad_images(images), is_training)
        x = blocks("a", 5, _paths_a, x)
        x = squeeze_excite(inception.reduction_a(x, is_training), reduction_ratio, True, name="reduction_a/se")
        x = blocks("b", 10, _paths_b, x)
        x = squeeze_excite(inception.reduction_b(x, is_training), reduction_ratio, True, name="reduction_b/se")
        x = blocks("c", 5, _paths_c, x)
        return inception.head(x, is_training, num_classes, dropout_rate)


def _residual_block(paths, x, is_training, reduction_ratio, se_position):
    """`x + 0.1 * residual`, batch norm, ReLU; squeeze-and-excitation on the result or on the residual."""

    def block(x):
        residual = tf.concat(paths(x), axis=3)
        residual = layers.conv2d(residual, layers.static_channels(x), 1, use_bias=True, name="conv")
        if se_position == "residual":
            residual = squeeze_excite(residual, reduction_ratio, use_bias=True)
        x = inception.bn_relu(x + RESIDUAL_SCALE * residual, is_training)
        return squeeze_excite(x, reduction_ratio, use_bias=True) if se_position == "block" else x

    return recompute.block(block, x)


def _paths_a(x):
    """Figure 16: `[b, 9, 9, 384] -> [b, 9, 9, 32 + 32 + 64]`."""
    b1 = conv_relu(x, 32, 1, name="b1_conv1")
    b2 = conv_relu(x, 32, 1, name="b2_conv1")
    b2 = conv_relu(b2, 32, 3, name="b2_conv2")
    b3 = conv_relu(x, 32, 1, name="b3_conv1")
    b3 = conv_relu(b3, 48, 3, name="b3_conv2")
    b3 = conv_relu(b3, 64, 3, name="b3_conv3")
    return [b1, b2, b3]


def _paths_b(x):
    """Figure 17: `[b, 4, 4, 1152] -> [b, 4, 4, 192 + 192]`."""
    b1 = conv_relu(x, 192, 1, name="b1_conv1")
    b2 = conv_relu(x, 128, 1, name="b2_conv1")
    b2 = conv_relu(b2, 160, [1, 7], name="b2_conv2")
    b2 = conv_relu(b2, 192, [7, 1], name="b2_conv3")
    return [b1, b2]


def _paths_c(x):
    """Figure 19: `[b, 1, 1, 2144] -> [b, 1, 1, 192 + 256]`."""
    b1 = conv_relu(x, 192, 1, name="b1_conv1")
    b2 = conv_relu(x, 192, 1, name="b2_conv1")
    b2 = conv_relu(b2, 224, [1, 3], name="b2_conv2")
    b2 = conv_relu(b2, 256, [3, 1], name="b2_conv3")
    return [b1, b2]
