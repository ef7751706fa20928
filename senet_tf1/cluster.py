"""The workers of a run: who they are, and how they find each other before anything else happens.

Worker 0 is the chief. Each worker is the plain command with its own `TF_CONFIG` (or --worker_hosts and --task_index).
"""

import json
import socket
import time
import zlib
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from senet_tf1 import collectives, heartbeat
from senet_tf1.compat import tf
from senet_tf1.config import Config
from senet_tf1.errors import ConfigError, WorkerError, first_line

_JOBS = ("chief", "worker")
_RETRY_SECONDS = 0.2
# What may differ between the workers of a run.
_OWN = ("data_dir", "model_dir", "device", "task_index", "resume", "init_from", "worker_hosts", "checkpoint_minutes")


class Cluster(NamedTuple):
    """The workers' addresses, the chief's first, and which one this is."""

    hosts: Tuple[str, ...]
    index: int

    def name(self, index: int) -> str:
        """For people: number and address of a worker."""
        return "worker %d (%s)" % (index, self.hosts[index])

    def tf_config(self) -> str:
        """As the value of TF_CONFIG."""
        task = {"type": "worker", "index": self.index}
        return json.dumps({"cluster": {"worker": list(self.hosts)}, "task": task})

    def device(self) -> str:
        """The prefix of this worker's devices."""
        return "/job:worker/replica:0/task:%d" % self.index


def find(config: Config, environ: Mapping[str, str]) -> Optional[Cluster]:
    """The cluster that the flags or `TF_CONFIG` name; None for a run on one worker.

    Raises:
      ConfigError: names what is wrong with it.
    """
    variable = environ.get("TF_CONFIG", "").strip()
    if config.worker_hosts and variable:
        raise ConfigError("--worker_hosts and the environment's TF_CONFIG both name workers: give one of them")
    if config.worker_hosts:
        hosts, index = [host.strip() for host in config.worker_hosts.split(",")], config.task_index
        _check_hosts("--worker_hosts", hosts)
        _check_index("--task_index", index, len(hosts))
    elif variable:
        hosts, index = _from_tf_config(variable)
    else:
        return None
    return Cluster(tuple(hosts), index) if len(hosts) > 1 else None


def _from_tf_config(text: str) -> Tuple[List[str], int]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError("TF_CONFIG is not JSON: %s" % error) from error
    expected = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
    parts = [value.get(name) if isinstance(value, dict) else None for name in ("cluster", "task")]
    if not all(isinstance(part, dict) for part in parts):
        raise ConfigError("TF_CONFIG=%s: expected %s" % (text[:200], expected))
    jobs, task = parts
    unknown = sorted(set(jobs) - set(_JOBS))
    if unknown:
        raise ConfigError(
            "TF_CONFIG names the jobs %s: expected worker, and chief if you like; there are no parameter servers here, "
            "and the chief evaluates" % ", ".join(unknown)
        )
    for name in jobs:
        _check_hosts("TF_CONFIG's %s" % name, jobs[name])
    if len(jobs.get("chief", [])) > 1:
        raise ConfigError("TF_CONFIG names %d chiefs: expected one" % len(jobs["chief"]))
    hosts = jobs.get("chief", []) + jobs.get("worker", [])
    _check_hosts("TF_CONFIG's cluster", hosts)
    if task.get("type") not in jobs:
        raise ConfigError("TF_CONFIG's task type is %r: expected one of %s" % (task.get("type"), ", ".join(jobs)))
    _check_index("TF_CONFIG's task index", task.get("index"), len(jobs[task["type"]]))
    before = len(jobs.get("chief", [])) if task["type"] == "worker" else 0
    return hosts, before + task["index"]


def _check_hosts(what: str, hosts: Any) -> None:
    if not isinstance(hosts, list) or not hosts:
        raise ConfigError("%s is %r: expected a list of host:port" % (what, hosts))
    for host in hosts:
        name, _, port = str(host).rpartition(":")
        if not isinstance(host, str) or not name or not port.isdigit() or not 1 <= int(port) <= 65535:
            raise ConfigError("%s has %r: expected host:port with a port of 1 to 65535" % (what, host))
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice:
        raise ConfigError("%s names %s twice: each worker has an address of its own" % (what, ", ".join(twice)))


def _check_index(what: str, index: Any, count: int) -> None:
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
        raise ConfigError("%s is %r: expected 0 to %d, there being %d" % (what, index, count - 1, count))


class Workers:
    """This worker's server, joined with the others: `target` and `session_config` are for its sessions."""

    def __init__(self, cluster: Cluster, config: Config, session_config: tf.ConfigProto, report: Callable[[str], None]):
        """Starts the server and waits for the others.

        Raises:
          ConfigError: this worker's port is taken, or a worker has other settings than the chief.
          WorkerError: a worker isn't there within --startup_timeout; names it.
        """
        self.cluster, self.session_config = cluster, session_config
        deadline = time.monotonic() + config.startup_timeout
        _check_port(cluster)
        session_config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
        session_config.device_filters.append("/job:worker/task:%d" % cluster.index)
        spec = tf.train.ClusterSpec({"worker": list(cluster.hosts)})
        self._server = tf.train.Server(spec, job_name="worker", task_index=cluster.index, config=session_config)
        self.target = self._server.target
        report("this is %s of %d; waiting for the others" % (cluster.name(cluster.index), len(cluster.hosts)))
        _wait_for_ports(cluster, deadline)
        self._pulse = self._meet(config, deadline)
        report("all %d workers are there" % len(cluster.hosts))

    def leave(self) -> None:
        """Tells the others that this worker is done and won't be missed."""
        self._pulse.leave()

    def explain(self, error: tf.errors.OpError) -> WorkerError:
        """The error of a step that failed because of another worker; waits for the heartbeat, which ends the process
        if it finds out who it was."""
        self._pulse.wait_for_verdict()
        return WorkerError("a step failed: %s" % first_line(error))

    def _meet(self, config: Config, deadline: float) -> "heartbeat.Pulse":
        """Tells everybody the chief's heartbeat address, and compares settings."""
        cluster, group = self.cluster, collectives.Group("start", len(self.cluster.hosts))
        listener = heartbeat.Listener() if cluster.index == 0 else None
        own = np.zeros([len(cluster.hosts), 3], np.int64)
        own[cluster.index] = [listener.port, listener.token, 0] if listener else [0, 0, 0]
        own[cluster.index, 2] = fingerprint(config)
        with tf.Graph().as_default(), tf.device(cluster.device() + "/cpu:0"):
            told = tf.placeholder(tf.int64, own.shape)
            everybody = collectives.all_reduce(told, group, "meeting")
            options = tf.RunOptions(timeout_in_ms=max(1000, int(1000 * (deadline - time.monotonic()))))
            with tf.Session(self.target, config=self.session_config) as session:
                try:
                    found = session.run(everybody, {told: own}, options=options)
                except tf.errors.OpError as error:
                    raise WorkerError(
                        "the workers can't talk to each other within --startup_timeout=%s s: %s. Is a worker's port "
                        "held by something else?" % (config.startup_timeout, first_line(error))
                    ) from error
        others = [cluster.name(index) for index in range(len(found)) if found[index, 2] != found[0, 2]]
        if others:
            raise ConfigError(
                "%s has other settings or another version than the chief; all workers need the same command, but for %s"
                % (", ".join(others), ", ".join("--" + name for name in _OWN))
            )
        address = (cluster.hosts[0].rpartition(":")[0], int(found[0, 0]))
        names = [cluster.name(index) for index in range(len(found))]
        try:
            return heartbeat.Pulse(names, cluster.index, listener, address, int(found[0, 1]), config.worker_timeout)
        except OSError as error:
            raise WorkerError(
                "the chief's heartbeat can't be reached at %s:%d: %s. Does a firewall close that port?"
                % (address + (error,))
            ) from error


def fingerprint(config: Config) -> int:
    """A number that is the same for workers whose settings fit together."""
    settings = {name: value for name, value in config._asdict().items() if name not in _OWN}
    return zlib.crc32(json.dumps(settings, sort_keys=True).encode())


def _check_port(cluster: Cluster) -> None:
    """TensorFlow's own message does not say what is wrong, and gRPC may even share the port with another process."""
    port = int(cluster.hosts[cluster.index].rpartition(":")[2])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ConfigError(
                "port %d of %s can't be used: %s. Stop what holds it, or give this worker another port."
                % (port, cluster.name(cluster.index), error)
            ) from error


def _wait_for_ports(cluster: Cluster, deadline: float) -> None:
    missing = set(range(len(cluster.hosts))) - {cluster.index}  # type: ignore[var-annotated]
    reasons = {}  # type: Dict[int, str]
    while missing:
        for index in sorted(missing):
            host, _, port = cluster.hosts[index].rpartition(":")
            try:
                socket.create_connection(
                    (host, int(port)), timeout=max(0.1, min(2.0, deadline - time.monotonic()))
                ).close()
                missing.discard(index)
            except OSError as error:
                reasons[index] = str(error)
        if missing and time.monotonic() > deadline:
            named = ["%s: %s" % (cluster.name(index), reasons[index]) for index in sorted(missing)]
            raise WorkerError("not there within --startup_timeout:\n  %s" % "\n  ".join(named))
        time.sleep(_RETRY_SECONDS if missing else 0.0)
