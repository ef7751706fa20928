"""Towers: one device, one slice of the batch and one call of the network each, on one set of variables.

Tower 0 creates the variables, the others reuse them, so that the variables and the checkpoints are the same for every
number of towers. Their gradients are added up where the variables live, then over the workers, if there are several.
"""

import contextlib
from typing import Any, Callable, Iterator, List, Sequence

from senet_tf1 import collectives
from senet_tf1.compat import tf


class Towers:
    """How replicas run, as towers. `strategies.Mirrored` is the other way, with the same attributes and methods."""

    def __init__(self, devices: Sequence[str] = ("",), variable_device: str = "", workers: int = 1, worker: int = 0):
        """
        Args:
          devices: one for each tower of this worker; "" is wherever TensorFlow places ops.
          variable_device: where the variables live and the gradients are added.
          workers: number of workers, each with as many towers.
          worker: this one's index.
        """
        self.devices, self._variable_device = list(devices), variable_device
        self.workers, self.worker = workers, worker
        self.update_devices = [variable_device]  # one for each copy of the variables

    def update_session_config(self, session_config: tf.ConfigProto) -> tf.ConfigProto:
        """Nothing is needed beyond what every run has."""
        return session_config

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Within it, variables are created on the variable device."""

        def creator(next_creator, **kwargs):
            with tf.device(self._variable_device):
                return next_creator(**kwargs)

        with tf.variable_creator_scope(creator):
            yield

    def run(self, build: Callable[[int], Any]) -> List[Any]:
        """`build(tower)` on each tower's device; their results."""
        results = []
        for tower, device in enumerate(self.devices):
            name = "tower_%d" % tower if len(self.devices) > 1 else None
            with tf.device(device), tf.name_scope(name), tf.variable_scope(tf.get_variable_scope(), reuse=tower > 0):
                results.append(build(tower))
        return results

    def shares(self, results: List[List[tf.Tensor]]) -> List[List[tf.Tensor]]:
        """The towers' tensors added up, next to the variables: the one share that this worker has."""
        with tf.device(self._variable_device):
            return [[tf.add_n(values) if len(values) > 1 else values[0] for values in zip(*results)]]

    def reduce(self, shares: List[List[tf.Tensor]]) -> List[List[tf.Tensor]]:
        """The shares added up over all workers, for each copy of the variables."""
        if self.workers == 1:
            return shares
        group = collectives.Group("gradients", self.workers)
        with tf.device(self._variable_device):
            return [collectives.packed(shares[0], lambda x, name: collectives.all_reduce(x, group, name))]

    def broadcast(self, variables: List[tf.Variable]) -> tf.Operation:
        """Gives every worker the chief's values."""
        if self.workers == 1:
            return tf.no_op()
        with tf.device(self._variable_device):
            return collectives.broadcast_variables(variables, self.workers, is_sender=self.worker == 0)

    def agree(self, wish: tf.Tensor) -> tf.Tensor:
        """The sum of a number over all workers, float32 []."""
        with tf.device(self._variable_device):
            return collectives.all_reduce(wish, collectives.Group("gradients", self.workers), "agree")

    def own(self, variable: tf.Variable, unused_number: int) -> tf.Variable:
        """The copy of the variable that replica `number` of this worker trains on."""
        return variable

    def copies(self, variable: tf.Variable) -> List[tf.Variable]:
        """The variable's copies, as many as `update_devices`."""
        return [variable]
