"""Sums over devices and workers by TensorFlow's own collective runtime: NCCL on GPUs, a ring on CPUs.

Every member of a group runs the same ops with the same keys. A key follows from a name, so that members that build
their graphs apart agree without talking.
"""

import zlib
from typing import Callable, List, NamedTuple

from senet_tf1.compat import tf

# The packed buffers of a reduction: large enough that latency does not count, small enough to overlap.
BUFFER_BYTES = 32 * 1024 * 1024
_KEYS = 0x3FFFFFFF


class Group(NamedTuple):
    """Devices that take part in the same collectives, one op each."""

    name: str
    size: int

    def key(self, instance: str) -> int:
        """The same number for the same name, on every member; above those that tf.distribute counts up from 1."""
        return 0x40000000 | zlib.crc32(("%s %s" % (self.name, instance)).encode()) & _KEYS


def all_reduce(x: tf.Tensor, group: Group, instance: str) -> tf.Tensor:
    """The sum of `x` over the group's members, on each of them; the same to the bit on all."""
    if group.size == 1:
        return x
    return tf.raw_ops.CollectiveReduce(
        input=x, group_size=group.size, group_key=group.key("group"), instance_key=group.key(instance),
        merge_op="Add", final_op="Id", subdiv_offsets=[0],
    )  # fmt: skip


def differentiable_all_reduce(x: tf.Tensor, group: Group, instance: str) -> tf.Tensor:
    """`all_reduce` with its gradient, which is the sum of the members' gradients."""

    @tf.custom_gradient
    def reduce(x):
        return all_reduce(x, group, instance), lambda dy: all_reduce(dy, group, instance + " gradient")

    return reduce(x)


def broadcast(x: tf.Tensor, group: Group, instance: str, is_sender: bool) -> tf.Tensor:
    """The sender's `x` on every member of the group, to the bit; shapes must be known and equal."""
    keys = {"group_size": group.size, "group_key": group.key("group"), "instance_key": group.key(instance)}
    if is_sender:
        return tf.raw_ops.CollectiveBcastSend(input=x, shape=x.shape, **keys)
    return tf.raw_ops.CollectiveBcastRecv(T=x.dtype, shape=x.shape, **keys)


def broadcast_variables(variables: List[tf.Variable], workers: int, is_sender: bool) -> tf.Operation:
    """Gives every worker the sender's values, to the bit."""
    group, ops = Group("variables", workers), []
    for dtype in sorted({variable.dtype.base_dtype.name for variable in variables}):
        same = [variable for variable in variables if variable.dtype.base_dtype.name == dtype]
        values = packed(
            [variable.read_value() for variable in same],
            lambda x, name, dtype=dtype: broadcast(x, group, "%s %s" % (dtype, name), is_sender),
        )
        ops += [variable.assign(value, read_value=False) for variable, value in zip(same, values)]
    return tf.group(*ops)


def packed(tensors: List[tf.Tensor], transfer: Callable[[tf.Tensor, str], tf.Tensor]) -> List[tf.Tensor]:
    """Applies `transfer(buffer, name)` to the tensors laid end to end in few large buffers, one after another.

    One after another because members must start collectives in the same order where a GPU stream runs them.

    Args:
      tensors: of one dtype, with known shapes.
      transfer: a sum or broadcast of a buffer [size]; `name` is the same on every member.

    Returns:
      Tensors of the same shapes.
    """
    results, last = [], []
    for number, part in enumerate(_buffers(tensors)):
        with tf.control_dependencies(last):
            buffer = transfer(tf.concat([tf.reshape(tensor, [-1]) for tensor in part], axis=0), "buffer %d" % number)
        last = [buffer.op]
        flat = tf.split(buffer, [tensor.shape.num_elements() for tensor in part])
        results += [tf.reshape(value, tensor.shape) for value, tensor in zip(flat, part)]
    return results


def _buffers(tensors: List[tf.Tensor]) -> List[List[tf.Tensor]]:
    """The tensors in order, cut into lists of about BUFFER_BYTES."""
    buffers, size = [], BUFFER_BYTES
    for tensor in tensors:
        bytes_of_tensor = tensor.shape.num_elements() * tensor.dtype.size
        if size + bytes_of_tensor > BUFFER_BYTES:
            buffers, size = buffers + [[]], 0
        buffers[-1].append(tensor)
        size += bytes_of_tensor
    return buffers
