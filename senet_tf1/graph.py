"""The graph: placeholders, replicas, loss, update. Built once, then only run.

Names a user of the graph can rely on: placeholders `images`, `labels`, `is_training`, `learning_rate`; tensor `logits`.
"""

from typing import Dict, List, NamedTuple, Optional, Tuple

from senet_tf1 import gradients, layers, models, numerics, replicas, statistics, towers, updates
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


class Batch(NamedTuple):
    """One micro-batch, as the input pipeline gives it: this worker's part of an update's batch."""

    images: tf.Tensor  # float32 [examples, height, width, channels], standardised
    labels: tf.Tensor  # int32 [examples]
    total: Optional[tf.Tensor] = None  # examples of the whole update, int32 []; None: these are all
    part: Optional[tf.Tensor] = None  # number of the first part that it holds (see `replicas`), int32 []; None: 0


class Training(NamedTuple):
    """What the training loop runs."""

    predictions: Predictions
    batch: Batch  # placeholders over the pipeline's output
    learning_rate: tf.Tensor  # placeholder, float32 []
    stop: tf.Tensor  # placeholder, float32 []: 1 where this worker was asked to stop
    global_step: tf.Variable  # updates made, int64 []
    accumulate: Optional[tf.Operation]  # takes a micro-batch in; None where an update is one batch
    update: tf.Operation  # takes the last micro-batch in and moves everything, or nothing where a number is not finite
    loss: tf.Tensor  # mean cross-entropy of the update's batch, without weight decay, float32 []
    accuracy: tf.Tensor  # share of correct answers in the update's batch, float32 []
    gradient_norm: tf.Tensor  # before clipping, float32 []
    stops: tf.Tensor  # how many workers were asked to stop, float32 []
    sums: Dict[str, tf.Variable]  # "window" and "epoch": [loss sum, correct answers, examples], float32 [3]
    resets: Dict[str, tf.Operation]  # set them to 0
    without_gradient: List[str]  # trainable variables that the loss does not depend on: they are left alone
    checks: numerics.Checks


class _Replica(NamedTuple):
    """What one replica computes of its slice of a micro-batch."""

    logits: tf.Tensor  # of its own examples, [examples, num_classes]
    gradients: List[Optional[tf.Tensor]]  # its part of the gradient of the update's mean loss, one a variable
    totals: tf.Tensor  # see `updates`
    moments: List[layers.Moments]
    forward_ops: List[tf.Operation]


def inference(config: Config, shape: Tuple[int, int, int], num_classes: int) -> Predictions:
    """The graph of evaluate and predict: `images` and `labels` must be fed (`labels` only for losses and ranks)."""
    images = tf.placeholder(tf.float32, (None,) + tuple(shape), name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    logits = models.build(config.arch, images, False, num_classes, **config.model_options())
    return _predictions(images, labels, tf.identity(logits, name="logits"))


def training(config: Config, batch: Batch, num_classes: int, replication=None) -> Training:
    """The training graph: replicas that train and a network that predicts, on the same variables.

    Args:
      config: the run's configuration.
      batch: used where nothing is fed.
      num_classes: number of classes.
      replication: how replicas run, a `towers.Towers` or a `strategies.Mirrored`; by default one tower.

    Raises:
      ValueError: a variable has a gradient in some replicas only.
    """
    replication = replication or towers.Towers()
    batch = _placeholders(Batch(*batch))
    is_training = tf.placeholder_with_default(False, [], name="is_training")
    learning_rate = tf.placeholder(tf.float32, [], name="learning_rate")
    stop = tf.placeholder_with_default(0.0, [], name="stop")
    with replication.scope():
        global_step = tf.train.get_or_create_global_step()
        built = replication.run(lambda number: _replica(config, replication, batch, num_classes, number))
        eval_logits = _prediction_network(config, replication, batch.images, num_classes)
        train_logits = tf.concat([replica.logits for replica in built], axis=0)
        # For those who load the graph. The loop itself never runs the network that it does not need.
        logits = tf.cond(is_training, lambda: tf.identity(train_logits), lambda: tf.identity(eval_logits))
        tf.identity(logits, name="logits")

        variables = tf.trainable_variables()
        names = [variable.op.name for variable in variables]
        found = gradients.with_gradient(names, [replica.gradients for replica in built])
        shares = replication.shares([[r.gradients[i] for i in found] + [r.totals] for r in built])
        trained, moments = [variables[index] for index in found], built[0].moments
        update = updates.update(config, replication, learning_rate, stop, shares, trained, moments)
    forward_ops = [op for replica in built for op in replica.forward_ops]
    return Training(
        predictions=_predictions(batch.images, batch.labels, eval_logits),
        batch=batch,
        learning_rate=learning_rate,
        stop=stop,
        global_step=replication.copies(global_step)[0],
        accumulate=update.accumulate,
        update=update.op,
        loss=update.loss,
        accuracy=update.accuracy,
        gradient_norm=update.norm,
        stops=update.stops,
        sums=update.sums,
        resets=update.resets,
        without_gradient=[name for index, name in enumerate(names) if index not in found],
        checks=numerics.checks(batch.images, forward_ops, update.raw, update.variables),
    )


def _placeholders(batch: Batch) -> Batch:
    """Placeholders over the pipeline's output, so that any of it can be fed."""
    images = tf.placeholder_with_default(batch.images, [None] + batch.images.shape.as_list()[1:], name="images")
    labels = tf.placeholder_with_default(batch.labels, [None], name="labels")
    if batch.total is None:
        return Batch(images, labels, tf.shape(images)[0], tf.constant(0))
    total = tf.placeholder_with_default(batch.total, [], name="update_examples")
    return Batch(images, labels, total, tf.placeholder_with_default(batch.part, [], name="part"))


def _replica(config: Config, replication, batch: Batch, num_classes: int, number: int) -> _Replica:
    """The training network on replica `number` of this worker: its slice, forward pass, gradient and totals."""
    graph = tf.get_default_graph()
    replica, images, labels = _slice(config, replication, batch, number)
    seen, before = len(tf.get_collection(layers.MOMENTS)), len(graph.get_operations())
    with replicas.building(replica):
        logits = models.build(config.arch, images, True, num_classes, **config.model_options())
    moments = tf.get_collection(layers.MOMENTS)[seen:]
    losses = _losses(logits, labels)
    forward_ops = graph.get_operations()[before:]

    loss_sum = tf.reduce_sum(losses) * replica.weight
    variables = [replication.own(variable, number) for variable in tf.trainable_variables()]
    own_gradients = tf.gradients(loss_sum / tf.cast(replica.total, tf.float32), variables)
    correct = tf.reduce_sum(tf.cast(_ranks(logits, labels) < 1, tf.float32)) * replica.weight
    examples = tf.cast(tf.shape(images)[0], tf.float32) * replica.weight
    counts = replica.weight
    if config.bn_update == "first":
        counts = tf.cast(tf.equal(batch.part + number, 0), tf.float32)
    totals = [tf.stack([loss_sum, correct, examples])] + statistics.pack(moments, counts)
    own_logits = logits[: tf.cast(examples, tf.int32)]
    return _Replica(own_logits, own_gradients, tf.concat(totals, axis=0), moments, forward_ops)


def _slice(config: Config, replication, batch: Batch, number: int):
    """Replica `number` of this worker, with its images and labels; where it has none of its own, with one lent."""
    per_worker = len(replication.devices)
    parts = config.accumulation_steps * replication.workers * per_worker
    held, own = tf.shape(batch.images)[0], batch.part + number
    worker_first, _ = replicas.span(batch.total, parts, batch.part, per_worker)
    first, last = [replicas.offset(batch.total, parts, part) - worker_first for part in (own, own + 1)]
    weight = tf.cast(last > first, tf.float32)
    start = tf.minimum(first, held - 1)
    rows = slice(start, tf.maximum(last, start + 1))
    replica = replicas.Replica(
        index=replication.worker * per_worker + number,
        count=replication.workers * per_worker,
        first=worker_first + start,
        total=batch.total,
        weight=weight,
        sync_batch_norm=config.sync_batch_norm,
        freeze_batch_norm=config.freeze_batch_norm,
        recompute=config.recompute,
    )
    return replica, batch.images[rows], batch.labels[rows]


def _prediction_network(config: Config, replication, images: tf.Tensor, num_classes: int) -> tf.Tensor:
    """The network with its moving averages on the first replica's device and copy of the variables."""

    def own(getter, *args, **kwargs):
        return replication.copies(getter(*args, **kwargs))[0]

    scope = tf.variable_scope(tf.get_variable_scope(), reuse=True, custom_getter=own)
    with tf.device(replication.devices[0]), scope:
        return models.build(config.arch, images, False, num_classes, **config.model_options())


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
