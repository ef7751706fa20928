"""What a replica knows of the others: its place among them, and its share of an update's batch.

An update's batch of n examples is cut into parts, one for each replica and micro-batch: part p of P has n // P
examples, and one more where p < n % P. The parts are in order, so that the joint batch is the same for every number of
towers, workers and micro-batches.
"""

import contextlib
import threading
from typing import Iterator, NamedTuple, Optional, Tuple, Union

from senet_tf1.compat import tf

_ACTIVE = threading.local()  # MirroredStrategy builds each replica in a thread of its own


class Replica(NamedTuple):
    """The replica whose network is being built."""

    index: int  # among the replicas of all workers
    count: int  # replicas of all workers
    first: tf.Tensor  # position of its first example in the update's batch, int32 []
    total: tf.Tensor  # examples of the update's batch, int32 []
    weight: tf.Tensor  # 1, or 0 where the replica has no example of its own and was lent one, float32 []
    sync_batch_norm: bool  # normalise by the statistics of all replicas together
    freeze_batch_norm: bool = False  # batch norm as in inference mode
    recompute: bool = False  # forget the activations of blocks and compute them again for the gradient
    recomputing: bool = False  # a second forward pass: the batch's moments were recorded in the first


@contextlib.contextmanager
def building(replica: Replica) -> Iterator[None]:
    """Within it, layers find `replica` by `active()`."""
    before = active()
    _ACTIVE.replica = replica
    try:
        yield
    finally:
        _ACTIVE.replica = before


def active() -> Optional[Replica]:
    """The replica that is being built; None outside a training graph."""
    return getattr(_ACTIVE, "replica", None)


def offset(total: tf.Tensor, parts: int, part: Union[int, tf.Tensor]) -> tf.Tensor:
    """Position of the first example of a part of a batch of `total` examples, int32 []."""
    total = tf.cast(total, tf.int32)
    return part * (total // parts) + tf.minimum(part, total % parts)


def span(total: tf.Tensor, parts: int, part: Union[int, tf.Tensor], length: int) -> Tuple[tf.Tensor, tf.Tensor]:
    """First and last (exclusive) position of `length` parts from `part` on, int32 []; never empty.

    Where the parts have no example, because the batch has fewer than there are parts, they are lent one, so that no
    layer sees an empty batch; its weight is to be 0.
    """
    first = tf.minimum(offset(total, parts, part), tf.cast(total, tf.int32) - 1)
    return first, tf.maximum(offset(total, parts, part + length), first + 1)
