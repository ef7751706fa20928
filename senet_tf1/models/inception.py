"""What the original's two inception networks share: stem, reductions, the size they need, and the head.

Szegedy et al., "Inception-v4, Inception-ResNet and the Impact of Residual Connections on Learning", AAAI 2017 (figures
in the docstrings are that paper's). Deviations that the original makes and this keeps: no batch norm after the
convolutions but one after each block's concatenation; the 32 x 32 images are zero-padded to 96 x 96.
"""

from senet_tf1 import layers
from senet_tf1.blocks import conv_relu
from senet_tf1.compat import tf

IMAGE_PADDING = 32
# 11 + 2 * 32 = 75 -> 37 -> 35 -> 17 -> 15 -> 7 (stem) -> 3 (reduction A) -> 1 (reduction B)
SMALLEST_IMAGE = 11


def conv_bias_scope(value: float):
    """A scope that gives the biases of its convolutions the initial value `value`.

    Between two batch norms there are up to five convolutions, each with a ReLU. At the original's 0 they make the
    images of a batch look more and more alike, batch norm then blows up what difference is left, and the gradient grows
    from block to block: its norm is 1,100 at the start. At 1 most ReLUs pass their input, and it is 94
    (docs/training.md).
    """
    return tf.variable_scope(tf.get_variable_scope(), initializer=tf.constant_initializer(value))


def pad_images(images: tf.Tensor) -> tf.Tensor:
    """Zero-pads 32 pixels on each side. Raises ValueError for images the reductions would shrink to nothing."""
    for size in images.shape.as_list()[1:3]:
        if size is not None and size < SMALLEST_IMAGE:
            raise ValueError(
                "images are %s: the inception networks need a height and width of at least %d pixels"
                % (images.shape, SMALLEST_IMAGE)
            )
    border = [IMAGE_PADDING, IMAGE_PADDING]
    return tf.pad(images, [[0, 0], border, border, [0, 0]])


def stem(x: tf.Tensor, is_training: layers.Training) -> tf.Tensor:
    """Figure 3: three convolutions, three pairs of parallel paths. `[b, 96, 96, 3] -> [b, 9, 9, 384]`."""
    with tf.variable_scope("stem"):
        x = conv_relu(x, 32, 3, 2, "VALID", name="conv1")
        x = conv_relu(x, 32, 3, 1, "VALID", name="conv2")
        x = conv_relu(x, 64, 3, name="conv3")
        x = tf.concat([layers.max_pool(x), conv_relu(x, 96, 3, 2, "VALID", name="conv4")], axis=3)
        left = conv_relu(x, 64, 1, name="left1")
        left = conv_relu(left, 96, 3, 1, "VALID", name="left2")
        right = conv_relu(x, 64, 1, name="right1")
        right = conv_relu(right, 64, [7, 1], name="right2")
        right = conv_relu(right, 64, [1, 7], name="right3")
        right = conv_relu(right, 96, 3, 1, "VALID", name="right4")
        x = tf.concat([left, right], axis=3)
        x = tf.concat([conv_relu(x, 192, 3, 2, "VALID", name="conv5"), layers.max_pool(x)], axis=3)
        return bn_relu(x, is_training)


def reduction_a(x: tf.Tensor, is_training: layers.Training) -> tf.Tensor:
    """Figure 7 with k = l = 256, m = n = 384. `[b, 9, 9, c] -> [b, 4, 4, c + 768]`."""
    with tf.variable_scope("reduction_a"):
        b1 = conv_relu(x, 384, 3, 2, "VALID", name="b1_conv1")
        b2 = conv_relu(x, 256, 1, name="b2_conv1")
        b2 = conv_relu(b2, 256, 3, name="b2_conv2")
        b2 = conv_relu(b2, 384, 3, 2, "VALID", name="b2_conv3")
        return bn_relu(tf.concat([layers.max_pool(x), b1, b2], axis=3), is_training)


def reduction_b(x: tf.Tensor, is_training: layers.Training) -> tf.Tensor:
    """Figure 18, with the original's filter counts. `[b, 4, 4, c] -> [b, 1, 1, c + 992]`."""
    with tf.variable_scope("reduction_b"):
        b1 = conv_relu(x, 256, 1, name="b1_conv1")
        b1 = conv_relu(b1, 384, 3, 2, "VALID", name="b1_conv2")
        b2 = conv_relu(x, 256, 1, name="b2_conv1")
        b2 = conv_relu(b2, 288, 3, 2, "VALID", name="b2_conv2")
        b3 = conv_relu(x, 256, 1, name="b3_conv1")
        b3 = conv_relu(b3, 288, 3, name="b3_conv2")
        b3 = conv_relu(b3, 320, 3, 2, "VALID", name="b3_conv3")
        return bn_relu(tf.concat([layers.max_pool(x), b1, b2, b3], axis=3), is_training)


def head(x: tf.Tensor, is_training: layers.Training, num_classes: int, dropout_rate: float) -> tf.Tensor:
    """Global average pool, dropout, FC: `[b, h, w, c] -> [b, num_classes]`."""
    with tf.variable_scope("head"):
        x = layers.dropout(layers.global_avg_pool(x), dropout_rate, is_training)
        return layers.dense(x, num_classes, name="fc")


def bn_relu(x: tf.Tensor, is_training: layers.Training) -> tf.Tensor:
    """Batch norm and ReLU, which end every block of the two networks."""
    return tf.nn.relu(layers.batch_norm(x, is_training, name="bn"))
