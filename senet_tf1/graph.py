"""The graph: placeholders, towers, loss, update. Built once, then only run.

Names a user of the graph can rely on: placeholders `images`, `labels`, `is_training`, `learning_rate`; tensor `logits`.
"""

from typing import Dict, List, NamedTuple, Tuple

from senet_tf1 import gradients, layers, models, numerics
from senet_tf1.compat import tf
from senet_tf1.config import Config


class Predictions(NamedTuple):
    """What an evaluation or prediction runs: the network with its moving averages."""

    images: tf.Tensor  # float32 [batch, height, width, channels], standardised
    labels: tf.Tensor  # int32 [batch]
    logits: tf.Tensor  # float32 [batch, num_classes]
    probabilities: tf.Tensor  # float32 [batch, num_classes]
    losses: tf.Tensor  # cross-entropy in nats, float32 [batch]
    ranks: tf.Tensor  # how many classes beat the label's, int32 [batch]; 0 is a correct answer


class Training(NamedTuple):
    """What the training loop runs."""

    predictions: Predictions
    learning_rate: tf.Tensor  # placeholder, float32 []
    global_step: tf.Variable  # updates made, int64 []
    update: tf.Operation  # one step; changes nothing where loss or gradients are not finite
    loss: tf.Tensor  # mean cross-entropy of the batch, without weight decay, float32 []
    accuracy: tf.Tensor  # share of correct answers in the batch, float32 []
    gradient_norm: tf.Tensor  # before clipping, float32 []
    sums: Dict[str, tf.Variable]  # "window" and "epoch": [loss sum, correct answers, examples], float32 [3]
    resets: Dict[str, tf.Operation]  # set them to 0
    checks: numerics.Checks


def inference(config: Config, shape: Tuple[int, int, int], num_classes: int) -> Predictions:
    """The graph of evaluate and predict: `images` and `labels` must be fed (`labels` only for losses and ranks)."""
    images = tf.placeholder(tf.float32, (None,) + tuple(shape), name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    logits = models.build(config.arch, images, False, num_classes, **config.model_options())
    return _predictions(images, labels, tf.identity(logits, name="logits"))


def training(config: Config, batch: Tuple[tf.Tensor, tf.Tensor], num_classes: int) -> Training:
    """The training graph: one tower that trains and one that predicts, on the same variables.

    Args:
      config: the run's configuration.
      batch: images float32 [batch, height, width, channels] and labels int32 [batch], used where nothing is fed.
      num_classes: number of classes.
    """
    global_step = tf.train.get_or_create_global_step()
    images = tf.placeholder_with_default(batch[0], [None] + batch[0].shape.as_list()[1:], name="images")
    labels = tf.placeholder_with_default(batch[1], [None], name="labels")
    is_training = tf.placeholder_with_default(False, [], name="is_training")
    learning_rate = tf.placeholder(tf.float32, [], name="learning_rate")

    train_logits = models.build(config.arch, images, True, num_classes, **config.model_options())
    losses = _losses(train_logits, labels)
    forward_ops = tf.get_default_graph().get_operations()
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        eval_logits = models.build(config.arch, images, False, num_classes, **config.model_options())
    # For those who load the graph. The loop itself never runs the tower that it does not need.
    logits = tf.cond(is_training, lambda: tf.identity(train_logits), lambda: tf.identity(eval_logits))
    tf.identity(logits, name="logits")

    loss = tf.reduce_mean(losses)
    variables = tf.trainable_variables()
    raw = tf.gradients(loss + _weight_decay(variables, config.weight_decay), variables)
    clipped, norm = gradients.clip(raw, config.clip_mode, config.clip_value)
    sums = {name: _sums(name) for name in ("window", "epoch")}
    correct = tf.cast(_ranks(train_logits, labels) < 1, tf.float32)
    batch_sums = tf.stack([tf.reduce_sum(losses), tf.reduce_sum(correct), tf.cast(tf.size(labels), tf.float32)])

    def move():
        """Weights, optimizer slots, batch-norm averages, sums and global step: all of them move, or none does."""
        moves = [op for moments in tf.get_collection(layers.MOMENTS) for op in layers.move_averages(moments)]
        moves += [total.assign_add(batch_sums, read_value=False) for total in sums.values()]
        with tf.control_dependencies(moves):
            optimizer = tf.train.MomentumOptimizer(learning_rate, config.momentum, use_nesterov=True)
            return optimizer.apply_gradients(list(zip(clipped, variables)), global_step)

    update = tf.cond(tf.is_finite(loss) & tf.is_finite(norm), move, tf.no_op)
    return Training(
        predictions=_predictions(images, labels, eval_logits),
        learning_rate=learning_rate,
        global_step=global_step,
        update=update.op,
        loss=loss,
        accuracy=tf.reduce_mean(correct),
        gradient_norm=norm,
        sums=sums,
        resets={name: total.assign(tf.zeros([3])).op for name, total in sums.items()},
        checks=numerics.checks(images, forward_ops, raw, variables),
    )


def _predictions(images: tf.Tensor, labels: tf.Tensor, logits: tf.Tensor) -> Predictions:
    return Predictions(images, labels, logits, tf.nn.softmax(logits), _losses(logits, labels), _ranks(logits, labels))


def _losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def _ranks(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """How many classes come before the label's, int32 [batch]; of equal logits the lower is first, as in argmax."""
    classes = tf.range(tf.shape(logits)[1])[tf.newaxis, :]
    label_logits = tf.gather_nd(logits, tf.stack([tf.range(tf.size(labels)), labels], axis=1))[:, tf.newaxis]
    earlier = tf.equal(logits, label_logits) & (classes < labels[:, tf.newaxis])
    return tf.reduce_sum(tf.cast((logits > label_logits) | earlier, tf.int32), axis=1)


def _weight_decay(variables: List[tf.Variable], factor: float) -> tf.Tensor:
    """factor * sum of squares / 2 over all variables, as the original: biases and batch norms decay too."""
    return factor * tf.add_n([tf.nn.l2_loss(variable) for variable in variables])


def _sums(name: str) -> tf.Variable:
    """A variable, so that a resumed run reports what the uninterrupted one would have."""
    zeros = tf.zeros_initializer()
    return tf.get_variable("metrics/" + name, [3], tf.float32, zeros, trainable=False, use_resource=True)
