"""Layers on `get_variable` and `tf.nn` only: `tf.layers` is gone under Keras 3, `tf.contrib` since TF 2.0.

Tensors are `[batch, height, width, channels]`. Every variable is a resource variable, so that a value read in a
step is the value before that step's updates, on every TensorFlow version. Initial values are functions of the
graph's seed (`tf.set_random_seed`) and the variable's scope name: they do not depend on the order in which the
graph is built, on how many towers share it, or on the TensorFlow version.
"""

import math
import zlib
from typing import Callable, List, NamedTuple, Sequence, Union

from senet_tf1 import collectives, compat, replicas
from senet_tf1.compat import tf

Training = Union[bool, tf.Tensor]
BATCH_NORM_DECAY = 0.9
BATCH_NORM_EPSILON = 0.001
MOMENTS = "batch_norm_moments"  # graph collection of `Moments`


class Moments(NamedTuple):
    """One batch norm's variables, and the moments of the batch that went through it in training mode."""

    moving_mean: tf.Variable  # [channels]
    moving_variance: tf.Variable  # [channels]
    local_step: tf.Variable  # updates so far, []
    mean: tf.Tensor  # [channels]
    variance: tf.Tensor  # of the batch itself, that is divided by count, [channels]
    count: tf.Tensor  # values of a channel in the batch, float32 []
    amount: Union[float, tf.Tensor]  # 1, or 0 where `is_training` is a tensor that is False
    decay: float


def stateless_seed(name: str) -> List[int]:
    """Two integers that follow from the graph's seed and `name`, for the stateless random ops."""
    graph_seed = tf.get_default_graph().seed or 0
    return [graph_seed & 0x7FFFFFFF, zlib.crc32(name.encode()) & 0x7FFFFFFF]


def glorot_uniform(fan_in: int, fan_out: int) -> Callable:
    """Initializer: uniform within sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010), `tf.layers`'s default."""

    def initializer(shape, dtype=tf.float32, partition_info=None):
        del partition_info
        limit = math.sqrt(6.0 / (fan_in + fan_out))
        seed = stateless_seed(tf.get_variable_scope().name)
        return tf.random.stateless_uniform(shape, seed, -limit, limit, dtype=dtype)

    return initializer


def static_channels(x: tf.Tensor) -> int:
    """The number of channels (last axis) of `x`. Raises ValueError where the graph does not know it."""
    channels = x.shape.as_list()[-1] if x.shape.rank is not None else None
    if channels is None:
        raise ValueError("%s has shape %s: the number of channels (last axis) must be known" % (x.name, x.shape))
    return channels


def conv2d(
    x: tf.Tensor,
    filters: int,
    kernel_size: Union[int, Sequence[int]],
    strides: int = 1,
    padding: str = "SAME",
    groups: int = 1,
    branches: int = 1,
    use_bias: bool = False,
    name: str = "conv2d",
) -> tf.Tensor:
    """A convolution; variables `kernel` [height, width, channels / groups, filters] and `bias` [filters].

    Args:
      x: [batch, height, width, channels].
      filters: output channels.
      kernel_size: side of a square kernel, or [height, width].
      strides: the same along height and width.
      padding: "SAME" or "VALID".
      groups: the input channels are split into this many groups, each with its own filters / groups kernels.
      branches: how many parallel convolutions the kernel stands for. It changes nothing but the initial values,
        which are those that the branches' separate kernels would have.
      use_bias: adds a bias; its initial value is the variable scope's initializer's, 0 where the scope has none.
      name: the variable scope.

    Returns:
      [batch, new_height, new_width, filters].

    Raises:
      ValueError: channels or filters do not divide by `groups`.
    """
    channels = static_channels(x)
    if channels % groups or filters % groups:
        raise ValueError("%d channels and %d filters must both divide by groups=%d" % (channels, filters, groups))
    height, width = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    with tf.variable_scope(name):
        shape = [height, width, channels // groups, filters]
        kernel = _kernel(shape, fan_out=height * width * filters // max(groups, branches))
        x = _grouped_conv2d(x, kernel, strides, padding, groups)
        if not use_bias:
            return x
        initializer = tf.get_variable_scope().initializer or tf.zeros_initializer()
        return tf.nn.bias_add(x, tf.get_variable("bias", [filters], tf.float32, initializer, use_resource=True))


def _grouped_conv2d(x: tf.Tensor, kernel: tf.Tensor, strides: int, padding: str, groups: int) -> tf.Tensor:
    """One op where this device has a grouped kernel for this type, else split, convolve and concatenate."""
    if groups == 1 or compat.has_grouped_conv2d(x.dtype, x.device):
        return tf.nn.conv2d(x, kernel, strides=[1, strides, strides, 1], padding=padding)
    pairs = zip(tf.split(x, groups, axis=3), tf.split(kernel, groups, axis=3))
    outputs = [
        tf.nn.conv2d(part, weights, strides=[1, strides, strides, 1], padding=padding) for part, weights in pairs
    ]
    return tf.concat(outputs, axis=3)


def dense(x: tf.Tensor, units: int, use_bias: bool = True, name: str = "dense") -> tf.Tensor:
    """A fully connected layer `[batch, features] -> [batch, units]`; variables `kernel` and `bias`."""
    features = static_channels(x)
    with tf.variable_scope(name):
        x = tf.matmul(x, _kernel([features, units], fan_out=units))
        return tf.nn.bias_add(x, _vector("bias", units, 0.0)) if use_bias else x


def batch_norm(
    x: tf.Tensor,
    is_training: Training,
    decay: float = BATCH_NORM_DECAY,
    epsilon: float = BATCH_NORM_EPSILON,
    name: str = "batch_norm",
) -> tf.Tensor:
    """Batch normalisation (Ioffe & Szegedy 2015) with a zero-debiased moving mean, as the original scripts use it.

    In training mode `x` is normalised by its batch's moments, which are added to the graph collection `MOMENTS`;
    nothing moves the averages until `move_averages` of each is run, once a step. In inference mode `x` is normalised
    by the moving averages.

    With t the number of updates so far (variable `local_step`) and m the batch's mean, the moving mean moves by

        moving_mean += (m - moving_mean) * (1 - decay) / (1 - decay ** t)

    which is Adam's bias correction (Kingma & Ba 2014) written without the biased average that `tf.contrib` kept in a
    further variable: after the first update it is the first batch's mean, whatever it was before. The moving variance
    is not debiased, and takes the batch's unbiased variance (divided by n - 1), as the fused kernels do.

    Args:
      x: float [batch, height, width, channels].
      is_training: bool, or bool tensor [].
      decay: share of the old average kept by an update.
      epsilon: added to the variance.
      name: the variable scope; variables beta, gamma, moving_mean, moving_variance [channels] and local_step [].

    Returns:
      The normalised `x`, same shape and dtype.
    """
    channels = static_channels(x)
    with tf.variable_scope(name):
        beta, gamma = _vector("beta", channels, 0.0), _vector("gamma", channels, 1.0)
        moving_mean = _vector("moving_mean", channels, 0.0, trainable=False)
        moving_variance = _vector("moving_variance", channels, 1.0, trainable=False)
        local_step = tf.get_variable(
            "local_step", [], tf.float32, tf.zeros_initializer(), trainable=False, use_resource=True
        )

        count = tf.cast(tf.size(x) // channels, tf.float32)
        replica = replicas.active()
        if replica is not None and replica.freeze_batch_norm:
            is_training = False

        def by_batch():
            if replica is not None and replica.sync_batch_norm:
                return _by_joint_batch(x, gamma, beta, epsilon, count * replica.weight, replica)
            y, mean, variance = tf.nn.fused_batch_norm(x, gamma, beta, epsilon=epsilon, is_training=True)
            # The fused kernel gives the variance divided by n - 1.
            return y, mean, variance * ((count - 1.0) / count)

        def by_averages():
            mean, variance = moving_mean.read_value(), moving_variance.read_value()
            y, _, _ = tf.nn.fused_batch_norm(x, gamma, beta, mean, variance, epsilon, is_training=False)
            return y, mean, variance

        y, mean, variance = cond(is_training, by_batch, by_averages)
        if is_training is not False and not (replica is not None and replica.recomputing):
            amount = 1.0 if is_training is True else tf.cast(is_training, tf.float32)
            tf.add_to_collection(
                MOMENTS, Moments(moving_mean, moving_variance, local_step, mean, variance, count, amount, decay)
            )
        return y


def _by_joint_batch(x, gamma, beta, epsilon, count, replica):
    """Batch norm by the statistics of all replicas' examples together; in two passes, as the fused kernel."""
    group = collectives.Group("batch norm", replica.count)
    layer = tf.get_variable_scope().name + (" recomputed" if replica.recomputing else "")
    total = collectives.all_reduce(count, group, layer + " count")
    mean = tf.reduce_mean(x, axis=[0, 1, 2]) * (count / total)
    mean = collectives.differentiable_all_reduce(mean, group, layer + " mean")
    variance = tf.reduce_mean(tf.square(x - mean), axis=[0, 1, 2]) * (count / total)
    variance = collectives.differentiable_all_reduce(variance, group, layer + " variance")
    return tf.nn.batch_normalization(x, mean, variance, beta, gamma, epsilon), mean, variance


def move_averages(moments: Moments) -> List[tf.Operation]:
    """Ops that move a batch norm's averages towards a batch's moments; where `amount` is 0 they change nothing."""
    step = moments.local_step.read_value() + moments.amount
    rate = 1.0 - tf.constant(moments.decay)
    # At step 0 nothing was seen and nothing is added (amount is 0); the maximum only avoids 0 / 0.
    debiased_rate = rate / (1.0 - tf.pow(1.0 - rate, tf.maximum(step, 1.0)))

    def move(average, value, rate):
        # Not average + (value - average) * rate: the first update, of rate 1, must leave nothing of the old average.
        return average.assign(average.read_value() * (1.0 - rate) + value * rate, read_value=False)

    unbiased = moments.variance * (moments.count / tf.maximum(moments.count - 1.0, 1.0))
    return [
        move(moments.moving_mean, moments.mean, moments.amount * debiased_rate),
        move(moments.moving_variance, unbiased, moments.amount * rate),
        moments.local_step.assign(step, read_value=False),
    ]


def dropout(x: tf.Tensor, rate: float, is_training: Training, name: str = "dropout") -> tf.Tensor:
    """Sets a share `rate` of the values to 0 and scales the others by 1 / (1 - rate), in training mode only.

    The draw is a function of the graph's seed, `name`, the global step and the example's position in the update's
    batch, so that a resumed run, and one on other towers, draws the same; in a graph without a global step each run
    draws anew.
    """
    if rate == 0.0 or is_training is False:
        return x
    step, replica = tf.train.get_global_step(), replicas.active()
    with tf.variable_scope(name) as scope:
        if step is None:
            draw = tf.random.uniform([], maxval=2**31 - 1, dtype=tf.int32)
        else:
            draw = tf.cast(step.read_value(), tf.int32)
        seed = tf.stack([sum(stateless_seed(scope.name)) & 0x7FFFFFFF, draw])

        def dropped():
            shape = tf.shape(x)
            if replica is None:
                draws = tf.random.stateless_uniform(shape, seed)
            else:
                of_all = tf.random.stateless_uniform(tf.concat([[replica.total], shape[1:]], axis=0), seed)
                draws = of_all[replica.first : replica.first + shape[0]]
            return x * tf.cast(draws >= rate, x.dtype) * (1.0 / (1.0 - rate))

        return cond(is_training, dropped, lambda: tf.identity(x))


def max_pool(x: tf.Tensor, size: int = 3, strides: int = 2, padding: str = "VALID") -> tf.Tensor:
    """The largest value of each size x size window."""
    return tf.nn.max_pool2d(x, size, strides, padding)


def avg_pool(x: tf.Tensor, size: int, strides: int, padding: str = "SAME") -> tf.Tensor:
    """The mean of each size x size window; padding does not count."""
    return tf.nn.avg_pool2d(x, size, strides, padding)


def global_avg_pool(x: tf.Tensor) -> tf.Tensor:
    """`[batch, height, width, channels] -> [batch, channels]`, the mean over height and width."""
    return tf.reduce_mean(x, axis=[1, 2])


def cond(predicate: Training, if_true: Callable, if_false: Callable):
    """`if_true()` or `if_false()`: chosen now for a Python bool, in the graph for a bool tensor []."""
    if isinstance(predicate, bool):
        return if_true() if predicate else if_false()
    return tf.cond(predicate, if_true, if_false)


def _kernel(shape: List[int], fan_out: int) -> tf.Variable:
    """The variable `kernel`."""
    initializer = glorot_uniform(_product(shape[:-1]), fan_out)
    return tf.get_variable("kernel", shape, tf.float32, initializer, use_resource=True)


def _vector(name: str, size: int, value: float, trainable: bool = True) -> tf.Variable:
    initializer = tf.constant_initializer(value)
    return tf.get_variable(name, [size], tf.float32, initializer, trainable=trainable, use_resource=True)


def _product(values: Sequence[int]) -> int:
    result = 1
    for value in values:
        result *= int(value)
    return result
