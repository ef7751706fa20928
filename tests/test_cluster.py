"""Workers: what names them is checked first, who is missing is named, and any split of a batch is the whole batch."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from senet_tf1 import checkpoint, cluster, config, launch
from senet_tf1.errors import ConfigError

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FLAGS = ["--cardinality=2", "--depth=4", "--blocks=1", "--dropout_rate=0.2", "--dataset=synthetic", "--log_every=4",
         "--train_examples=100", "--batch_size=10", "--learning_rate=0.01", "--seed=3",
         "--epochs_between_evals=4"]  # fmt: skip


def settings(**given):
    return config.resolve(given)


def tf_config(workers, index=0, **more):
    task = {"type": "worker", "index": index}
    return {"TF_CONFIG": json.dumps(dict({"cluster": {"worker": workers}, "task": task}, **more))}


class TestFinding:
    def test_one_worker_is_no_cluster(self):
        assert cluster.find(settings(), {}) is None
        assert cluster.find(settings(), tf_config(["a:1"])) is None

    def test_flags_and_tf_config_say_the_same(self):
        expected = cluster.Cluster(("a:1", "b:2"), 1)
        assert cluster.find(settings(worker_hosts="a:1,b:2", task_index=1), {}) == expected
        assert cluster.find(settings(), tf_config(["a:1", "b:2"], 1)) == expected
        assert cluster.find(settings(), {"TF_CONFIG": expected.tf_config()}) == expected

    def test_a_chief_comes_first(self):
        jobs = {"chief": ["c:1"], "worker": ["a:1", "b:2"]}
        task = {"type": "worker", "index": 0}
        found = cluster.find(settings(), {"TF_CONFIG": json.dumps({"cluster": jobs, "task": task})})
        assert found == cluster.Cluster(("c:1", "a:1", "b:2"), 1)

    @pytest.mark.parametrize(
        "text,message",
        [
            ("{", "TF_CONFIG is not JSON"),
            ("[]", r"TF_CONFIG=\[\]: expected"),
            ('{"cluster": {"worker": ["a:1", "b:1"]}}', "expected"),
            (tf_config(["a:1", "b:1"], 2)["TF_CONFIG"], "task index is 2: expected 0 to 1"),
            (tf_config(["a:1", "b:1"], "0")["TF_CONFIG"], "task index is '0': expected 0 to 1"),
            (tf_config(["a:1", "a:1"])["TF_CONFIG"], "names a:1 twice"),
            (tf_config(["a:1", "b"])["TF_CONFIG"], "has 'b': expected host:port"),
            (tf_config(["a:1", "b:99999"])["TF_CONFIG"], "has 'b:99999': expected host:port with a port of 1 to 65535"),
            (tf_config([])["TF_CONFIG"], "expected a list of host:port"),
            (tf_config("a:1")["TF_CONFIG"], "expected a list of host:port"),
            (json.dumps({"cluster": {"ps": ["a:1"]}, "task": {}}), "names the jobs ps: .*no parameter servers"),
            (json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"type": "ps"}}), "task type is 'ps'"),
        ],
    )
    def test_what_is_wrong_is_named(self, text, message):
        with pytest.raises(ConfigError, match=message):
            cluster.find(settings(), {"TF_CONFIG": text})

    def test_flags_alone(self):
        with pytest.raises(ConfigError, match="go together"):
            settings(worker_hosts="a:1,b:2")
        with pytest.raises(ConfigError, match="--task_index is 2: expected 0 to 1"):
            cluster.find(settings(worker_hosts="a:1,b:2", task_index=2), {})
        with pytest.raises(ConfigError, match="both name workers"):
            cluster.find(settings(worker_hosts="a:1,b:2", task_index=0), tf_config(["a:1", "b:1"]))

    def test_settings_that_must_agree(self):
        ours = cluster.fingerprint(settings(seed=1, model_dir="here"))
        assert ours == cluster.fingerprint(settings(seed=1, model_dir="there"))
        assert ours != cluster.fingerprint(settings(seed=2, model_dir="here"))


def start(model_dir, count, steps, *more, **options):
    """Workers as real processes on loopback; `only` starts some of them."""
    ports = options.get("ports") or launch.free_ports(count)
    environ = dict(os.environ, PYTHONPATH=ROOT)
    workers = []
    for index in options.get("only", range(count)):
        flags = FLAGS + ["--train_steps=%d" % steps, "--model_dir=%s" % model_dir] + list(more)
        workers.append(launch.start(flags, ports, index, environ))
    return workers


def finish(workers, seconds=120):
    """Exit codes and outputs; kills what is left after the time limit."""
    outputs = []
    try:
        for worker in workers:
            outputs.append(worker.communicate(timeout=seconds)[0])
    finally:
        for worker in workers:
            worker.kill()
    return [worker.returncode for worker in workers], outputs


def run_alone(model_dir, steps, *more):
    flags = FLAGS + ["--train_steps=%d" % steps, "--model_dir=%s" % model_dir] + list(more)
    environ = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    subprocess.check_call([sys.executable, os.path.join(ROOT, "run_cifar10.py")] + flags, env=environ, timeout=120)


def weights(model_dir, step):
    return checkpoint.read(checkpoint.path_of(str(model_dir / "checkpoints"), step))


def wait_for_lines(model_dir, count, seconds=100):
    path, deadline = model_dir / "metrics.jsonl", time.time() + seconds
    while not path.exists() or len(path.read_text().splitlines()) < count:
        assert time.time() < deadline
        time.sleep(0.05)


class TestStart:
    def test_a_missing_worker_is_named_and_nothing_written(self, tmp_path):
        workers = start(tmp_path / "run", 2, 10, "--startup_timeout=3", only=[0])
        codes, outputs = finish(workers)
        assert codes == [1]
        assert "not there within --startup_timeout" in outputs[0] and "worker 1 (localhost:" in outputs[0]
        assert not (tmp_path / "run").exists()

    def test_a_port_that_is_taken(self, tmp_path):
        with socket.socket() as holder:
            holder.bind(("", 0))
            holder.listen(1)
            ports = [holder.getsockname()[1]] + launch.free_ports(1)
            codes, outputs = finish(start(tmp_path / "run", 2, 10, ports=ports, only=[0]))
        assert codes == [2] and "port %d of worker 0" % ports[0] in outputs[0]


class TestTraining:
    def test_two_workers_are_one(self, tmp_path):
        """With batch norm in inference mode, on batches of 10 and a last one of 4; both say where they resume."""
        flags = ["--freeze_batch_norm", "--train_examples=94"]
        run_alone(tmp_path / "one", 12, *flags)
        codes, _ = finish(start(tmp_path / "two", 2, 5, *flags))
        assert codes == [0, 0]
        codes, outputs = finish(start(tmp_path / "two", 2, 12, *flags))
        assert codes == [0, 0] and all("resumed from step 5 of 12" in output for output in outputs)
        ours, theirs = weights(tmp_path / "two", 12), weights(tmp_path / "one", 12)
        assert list(ours) == list(theirs)
        for name, value in theirs.items():
            np.testing.assert_allclose(ours[name], value, atol=1e-5, err_msg=name)

    @pytest.mark.slow
    def test_multi_worker_mirrored_is_towers(self, tmp_path):
        flags = ["--freeze_batch_norm", "--train_examples=94"]
        assert finish(start(tmp_path / "towers", 2, 12, *flags))[0] == [0, 0]
        assert finish(start(tmp_path / "mirrored", 2, 12, "--strategy=multi_worker_mirrored", *flags))[0] == [0, 0]
        ours, theirs = weights(tmp_path / "mirrored", 12), weights(tmp_path / "towers", 12)
        for name, value in theirs.items():
            np.testing.assert_allclose(ours[name], value, atol=1e-5, err_msg=name)

    @pytest.mark.slow
    def test_a_killed_worker_is_named_and_the_run_goes_on_to_the_bit(self, tmp_path):
        assert finish(start(tmp_path / "whole", 2, 100))[0] == [0, 0]
        for victim, lines in ((1, 6), (0, 15)):
            workers = start(tmp_path / "killed", 2, 100)
            wait_for_lines(tmp_path / "killed", lines)
            workers[victim].kill()
            codes, outputs = finish(workers, 60)
            assert codes[1 - victim] == 1
            assert "ERROR: worker %d (localhost:" % victim in outputs[1 - victim]
        assert finish(start(tmp_path / "killed", 2, 100))[0] == [0, 0]
        ours, theirs = weights(tmp_path / "killed", 100), weights(tmp_path / "whole", 100)
        for name, value in theirs.items():
            np.testing.assert_array_equal(ours[name], value, err_msg=name)

    @pytest.mark.slow
    def test_a_worker_that_does_not_answer_is_named(self, tmp_path):
        workers = start(tmp_path / "run", 2, 100000, "--worker_timeout=3")
        wait_for_lines(tmp_path / "run", 3)
        workers[1].send_signal(signal.SIGSTOP)
        codes, outputs = finish(workers[:1], 60)
        workers[1].kill()
        assert codes == [1] and "did not answer for 3 s" in outputs[0]

    @pytest.mark.slow
    def test_sigterm_on_one_stops_all_at_the_same_step(self, tmp_path):
        workers = start(tmp_path / "run", 2, 100000)
        wait_for_lines(tmp_path / "run", 3)
        workers[1].terminate()
        codes, outputs = finish(workers, 60)
        assert codes == [0, 0]
        stops = [line for output in outputs for line in output.splitlines() if line.startswith("stopped at step")]
        assert len(stops) == 2 and stops[0] == stops[1]
        step = int(stops[0].split()[3].rstrip(";"))
        assert weights(tmp_path / "run", step)["global_step"] == step
