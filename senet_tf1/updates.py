"""From the replicas' gradients to the update: accumulate -> add over workers -> finite check -> clip -> apply.

What is added up is, for each replica, its part of every gradient and one vector of totals:

    [loss sum, correct answers, examples, batch-norm statistics (see `statistics`), workers asked to stop]

It all travels together, so that every worker and every copy of the variables decides alike.
"""

from typing import Dict, List, NamedTuple, Optional, Tuple

from senet_tf1 import gradients, layers, optimizers, statistics
from senet_tf1.compat import tf
from senet_tf1.config import Config

_COUNTS = 3  # loss sum, correct answers, examples
SUMS = ("window", "epoch")
Share = List[tf.Tensor]  # gradients, then totals


class State(NamedTuple):
    """The variables that an update moves: in the graph, or one copy of them."""

    variables: List[tf.Variable]  # those with a gradient
    slots: List[tf.Variable]
    moments: List[layers.Moments]
    sums: List[tf.Variable]  # see `graph.Training.sums`
    global_step: tf.Variable


class Update(NamedTuple):
    """See `graph.Training` for the fields of the same name."""

    op: tf.Operation
    accumulate: Optional[tf.Operation]
    loss: tf.Tensor
    accuracy: tf.Tensor
    norm: tf.Tensor
    stops: tf.Tensor
    sums: Dict[str, tf.Variable]
    resets: Dict[str, tf.Operation]
    raw: List[tf.Tensor]  # gradients before clipping
    variables: List[tf.Variable]  # that they are of


def update(
    config: Config,
    replication,
    learning_rate: tf.Tensor,
    stop: tf.Tensor,
    shares: List[Share],
    variables: List[tf.Variable],
    moments: List[layers.Moments],
) -> Update:
    """Adds the update of every copy of the variables.

    Args:
      config: the run's configuration.
      replication: how replicas run.
      learning_rate: float32 [].
      stop: float32 [], 1 where this worker was asked to stop.
      shares: this worker's sums over its replicas (one share), or one share a replica.
      variables: those that have gradients, in the order of the shares.
      moments: the batch norms, in the order of the totals.
    """
    accumulate, shares, clear = _accumulated(config, replication, shares)
    reduced = replication.reduce(_with_stop(shares, stop))
    sums = [_zeros("metrics/" + name, [_COUNTS]) for name in SUMS]
    global_step = tf.train.get_or_create_global_step()
    state = State(variables, optimizers.slots(variables), moments, sums, global_step)
    copies = [_copy(replication, state, copy) for copy in range(len(replication.update_devices))]
    applied = []
    for device, share, copy in zip(replication.update_devices, reduced, copies):
        with tf.device(device):
            applied.append(_apply(config, learning_rate, share, copy))
    with tf.control_dependencies([op for op, _, _ in applied]):
        op = tf.group(*[variable.assign(tf.zeros_like(variable), read_value=False) for variable in clear])
    totals = reduced[0][-1]
    return Update(
        op=op,
        accumulate=accumulate,
        loss=totals[0] / totals[2],
        accuracy=totals[1] / totals[2],
        norm=applied[0][1],
        stops=totals[-1],
        sums=dict(zip(SUMS, copies[0].sums)),
        resets={name: tf.group(*[_reset(copy.sums[n]) for copy in copies]) for n, name in enumerate(SUMS)},
        raw=applied[0][2],
        variables=copies[0].variables,
    )


def _accumulated(config: Config, replication, shares: List[Share]):
    """The op that takes a micro-batch in, shares with all micro-batches so far, and the variables to clear after."""
    if config.accumulation_steps == 1:
        return None, shares, []
    kept = [_zeros("accumulated/%d" % n, t.shape, tf.GraphKeys.LOCAL_VARIABLES) for n, t in enumerate(shares[0])]
    pairs = [list(zip(share, own)) for share, own in zip(shares, zip(*[replication.copies(v) for v in kept]))]
    flat = [pair for share in pairs for pair in share]
    accumulate = tf.group(*[variable.assign_add(tensor, read_value=False) for tensor, variable in flat])
    return accumulate, [[v.read_value() + t for t, v in share] for share in pairs], [v for _, v in flat]


def _with_stop(shares: List[Share], stop: tf.Tensor) -> List[Share]:
    """Appends this worker's wish to stop to the totals, once."""
    wishes = [stop] + [tf.constant(0.0)] * (len(shares) - 1)
    return [share[:-1] + [tf.concat([share[-1], [wish]], axis=0)] for share, wish in zip(shares, wishes)]


def _apply(
    config: Config, learning_rate: tf.Tensor, share: Share, state: State
) -> Tuple[tf.Operation, tf.Tensor, List[tf.Tensor]]:
    """The update of one copy, the gradient's norm before clipping, and the gradients before clipping.

    Weight decay is that of the original: the gradient of factor * sum of squares / 2 over all trainable variables,
    biases and batch norms too.
    """
    counts, collected = share[-1][:_COUNTS], share[-1][_COUNTS:-1]
    raw = [g + config.weight_decay * v.read_value() for g, v in zip(share[:-1], state.variables)]
    clipped, norm = gradients.clip(raw, config.clip_mode, config.clip_value)

    def move():
        """Weights, optimizer slots, batch-norm averages, sums and global step: all of them move, or none does."""
        joint = statistics.unpack(collected, state.moments)
        moves = [op for moments in joint for op in layers.move_averages(moments)]
        moves += [total.assign_add(counts, read_value=False) for total in state.sums]
        with tf.control_dependencies(moves):
            moves = [
                optimizers.momentum(variable, slot, gradient, learning_rate, config.momentum)
                for variable, slot, gradient in zip(state.variables, state.slots, clipped)
            ]
        with tf.control_dependencies(moves):
            return state.global_step.assign_add(1, read_value=False)

    finite = tf.is_finite(counts[0]) & tf.is_finite(norm)
    return tf.cond(finite, move, tf.no_op).op, norm, raw


def _copy(replication, state: State, copy: int) -> State:
    """One copy of the variables."""

    def own(variable):
        return replication.copies(variable)[copy]

    moments = [
        part._replace(
            moving_mean=own(part.moving_mean),
            moving_variance=own(part.moving_variance),
            local_step=own(part.local_step),
        )
        for part in state.moments
    ]
    groups = [[own(variable) for variable in group] for group in (state.variables, state.slots, state.sums)]
    return State(groups[0], groups[1], moments, groups[2], own(state.global_step))


def _zeros(name: str, shape, collection: str = tf.GraphKeys.GLOBAL_VARIABLES) -> tf.Variable:
    """A variable that is not trained; global ones are in the checkpoint, so that a resumed run reports the same."""
    zeros = tf.zeros_initializer()
    return tf.get_variable(name, shape, tf.float32, zeros, trainable=False, use_resource=True, collections=[collection])


def _reset(variable: tf.Variable) -> tf.Operation:
    return variable.assign(tf.zeros([_COUNTS]), read_value=False)
