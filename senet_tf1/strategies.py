"""`tf.distribute`: MirroredStrategy and MultiWorkerMirroredStrategy running the same builders, in graph mode.

Each replica has a copy of every variable and computes on it; the strategy's all-reduce adds up what the replicas
computed, and every copy is then updated on its own device by the same ops as a tower's variables. The checkpoint holds
the first copy, under the same names: runs can change from towers to a strategy and back.
"""

import contextlib
from typing import Any, Callable, Iterator, List, Sequence

from senet_tf1 import collectives
from senet_tf1.compat import tf
from senet_tf1.errors import ConfigError


def mirrored(devices: Sequence[str], all_reduce: str) -> "Mirrored":
    """Replicas on the devices of one machine.

    Raises:
      ConfigError: NCCL is wanted on devices that are not GPUs, or the hierarchy on an odd number of devices.
    """
    if all_reduce == "hierarchical" and len(devices) % 2:
        # It cuts the devices into halves and silently leaves out the odd one.
        raise ConfigError(
            "--all_reduce=hierarchical adds up over two halves of the replicas, and there are %d: give an even "
            "--num_gpus, or take another --all_reduce" % len(devices)
        )
    if all_reduce == "nccl" and not devices[0].startswith("/gpu"):
        raise ConfigError("--all_reduce=nccl: NCCL adds up on GPUs only, and the replicas are on %s" % devices[0])
    operations = {
        "auto": lambda: None,
        "nccl": tf.distribute.NcclAllReduce,
        "hierarchical": tf.distribute.HierarchicalCopyAllReduce,
        "one_device": tf.distribute.ReductionToOneDevice,
    }[all_reduce]()
    return Mirrored(tf.distribute.MirroredStrategy(list(devices), cross_device_ops=operations), devices)


def multi_worker(devices: Sequence[str], workers: int, worker: int) -> "Mirrored":
    """Replicas on the devices of several machines, which the environment's `TF_CONFIG` names."""
    return Mirrored(tf.distribute.experimental.MultiWorkerMirroredStrategy(), devices, workers, worker)


class Mirrored:
    """How replicas run, under a strategy: the attributes and methods of `towers.Towers`."""

    def __init__(self, strategy: Any, devices: Sequence[str], workers: int = 1, worker: int = 0):
        self._strategy, self.devices = strategy, list(devices)
        self.workers, self.worker = workers, worker
        self.update_devices = list(devices)

    def update_session_config(self, session_config: tf.ConfigProto) -> tf.ConfigProto:
        """The configuration with what the strategy needs; for the server too."""
        return self._strategy.update_config_proto(session_config)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Within it, every variable has a copy on each device."""
        with self._strategy.scope():
            yield

    def run(self, build: Callable[[int], Any]) -> List[Any]:
        """`build(replica)` in each replica's context; their results."""
        results = []  # type: List[Any]

        def one_replica():
            results.append(build(len(results)))
            return tf.constant(0)

        self._run(one_replica)
        return results

    def shares(self, results: List[List[tf.Tensor]]) -> List[List[tf.Tensor]]:
        """One share for each replica: adding up is `reduce`'s."""
        return results

    def reduce(self, shares: List[List[tf.Tensor]]) -> List[List[tf.Tensor]]:
        """The shares added up over all replicas of all workers, for each copy of the variables."""
        if len(shares) * self.workers == 1:
            return shares
        replicas = iter(range(len(shares)))

        def add_up(strategy, values):
            return strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, [(value, value) for value in values])

        def one_replica():
            # Not the context's all_reduce: its gradient, of no use here, looks for variables and stumbles over copies.
            return tf.distribute.get_replica_context().merge_call(add_up, args=(list(shares[next(replicas)]),))

        reduced = [self.copies(value) for value in self._run(one_replica)]
        return [[values[copy] for values in reduced] for copy in range(len(shares))]

    def broadcast(self, variables: List[tf.Variable]) -> tf.Operation:
        """Gives every copy on every worker the values of the chief's first copy."""
        first = tf.no_op()
        if self.workers > 1:
            with tf.device(self.devices[0]):
                own = [self.copies(variable)[0] for variable in variables]
                first = collectives.broadcast_variables(own, self.workers, is_sender=self.worker == 0)
        with tf.control_dependencies([first]):
            copies = [self.copies(variable) for variable in variables]
            return tf.group(*[c.assign(group[0].read_value(), read_value=False) for group in copies for c in group[1:]])

    def agree(self, wish: tf.Tensor) -> tf.Tensor:
        """The sum of a number over all workers, float32 []."""
        with tf.device(self.devices[0]):
            return collectives.all_reduce(wish, collectives.Group("gradients", self.workers), "agree")

    def own(self, variable: tf.Variable, number: int) -> tf.Variable:
        """The copy of the variable that replica `number` of this worker trains on."""
        return self.copies(variable)[number]

    def copies(self, variable: tf.Variable) -> List[tf.Variable]:
        """The variable's copies, as many as `update_devices`."""
        return list(self._strategy.experimental_local_results(variable))

    def _run(self, function: Callable[[], Any]) -> Any:
        run = getattr(self._strategy, "run", None) or self._strategy.experimental_run_v2  # its name until TF 2.1
        return run(function)
