"""SE-Inception-v4 as the original script builds it: Inception-v4 with squeeze-and-excitation after every block.

Paper and deviations: see `inception.py`. One more of the original's is kept: block B's third path has two 1x7
convolutions where the paper's figure 5 has a 1x7 and a 7x1.
"""

from senet_tf1 import layers, recompute
from senet_tf1.blocks import conv_relu, squeeze_excite
from senet_tf1.compat import tf
from senet_tf1.models import inception


def se_inception_v4(
    images: tf.Tensor,
    is_training: layers.Training,
    num_classes: int = 10,
    reduction_ratio: int = 4,
    dropout_rate: float = 0.2,
    conv_bias: float = 0.0,
) -> tf.Tensor:
    """Stem, 4 blocks A, reduction A, 7 blocks B, reduction B, 3 blocks C, global average pool, dropout, FC.

    Args:
      images: float [batch, height, width, 3], standardised; at least 11 x 11 pixels.
      is_training: bool, or bool tensor [].
      num_classes: number of logits.
      reduction_ratio: of the squeeze-and-excitations.
      dropout_rate: before the FC.
      conv_bias: initial value of the convolutions' biases; 0 is the original's.

    Returns:
      Logits [batch, num_classes].

    Raises:
      ValueError: the images are too small, or an option is out of its range.
    """
    with inception.conv_bias_scope(conv_bias):
        x = inception.stem(inception.pad_images(images), is_training)
        for block in range(1, 5):
            x = _block("block_a%d" % block, _paths_a, x, is_training, reduction_ratio)
        x = inception.reduction_a(x, is_training)
        for block in range(1, 8):
            x = _block("block_b%d" % block, _paths_b, x, is_training, reduction_ratio)
        x = inception.reduction_b(x, is_training)
        for block in range(1, 4):
            x = _block("block_c%d" % block, _paths_c, x, is_training, reduction_ratio)
        return inception.head(x, is_training, num_classes, dropout_rate)


def _block(name, paths, x, is_training, reduction_ratio):
    """Parallel paths, concatenation, batch norm, ReLU, squeeze-and-excitation."""

    def block(x):
        x = inception.bn_relu(tf.concat(paths(x), axis=3), is_training)
        return squeeze_excite(x, reduction_ratio, use_bias=True)

    with tf.variable_scope(name):
        return recompute.block(block, x)


def _paths_a(x):
    """Figure 4: `[b, 9, 9, 384] -> 4 x [b, 9, 9, 96]`."""
    b1 = conv_relu(layers.avg_pool(x, 3, 1), 96, 1, name="b1_conv1")
    b2 = conv_relu(x, 96, 1, name="b2_conv1")
    b3 = conv_relu(x, 64, 1, name="b3_conv1")
    b3 = conv_relu(b3, 96, 3, name="b3_conv2")
    b4 = conv_relu(x, 64, 1, name="b4_conv1")
    b4 = conv_relu(b4, 96, 3, name="b4_conv2")
    b4 = conv_relu(b4, 96, 3, name="b4_conv3")
    return [b1, b2, b3, b4]


def _paths_b(x):
    """Figure 5: `[b, 4, 4, 1152 or 1024] -> [b, 4, 4, 128 + 384 + 256 + 256]`."""
    b1 = conv_relu(layers.avg_pool(x, 3, 1), 128, 1, name="b1_conv1")
    b2 = conv_relu(x, 384, 1, name="b2_conv1")
    b3 = conv_relu(x, 192, 1, name="b3_conv1")
    b3 = conv_relu(b3, 224, [1, 7], name="b3_conv2")
    b3 = conv_relu(b3, 256, [1, 7], name="b3_conv3")
    b4 = conv_relu(x, 192, 1, name="b4_conv1")
    b4 = conv_relu(b4, 192, [1, 7], name="b4_conv2")
    b4 = conv_relu(b4, 224, [7, 1], name="b4_conv3")
    b4 = conv_relu(b4, 224, [1, 7], name="b4_conv4")
    b4 = conv_relu(b4, 256, [7, 1], name="b4_conv5")
    return [b1, b2, b3, b4]


def _paths_c(x):
    """Figure 6: `[b, 1, 1, 2016 or 1536] -> 6 x [b, 1, 1, 256]`."""
    b1 = conv_relu(layers.avg_pool(x, 3, 1), 256, 1, name="b1_conv1")
    b2 = conv_relu(x, 256, 1, name="b2_conv1")
    b3 = conv_relu(x, 384, 1, name="b3_conv1")
    b3_left = conv_relu(b3, 256, [1, 3], name="b3_left")
    b3_right = conv_relu(b3, 256, [3, 1], name="b3_right")
    b4 = conv_relu(x, 384, 1, name="b4_conv1")
    b4 = conv_relu(b4, 448, [1, 3], name="b4_conv2")
    b4 = conv_relu(b4, 512, [3, 1], name="b4_conv3")
    b4_left = conv_relu(b4, 256, [3, 1], name="b4_left")
    b4_right = conv_relu(b4, 256, [1, 3], name="b4_right")
    return [b1, b2, b3_left, b3_right, b4_left, b4_right]
