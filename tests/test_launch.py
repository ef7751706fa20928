"""The launcher: workers with a TF_CONFIG each, one joined log, and the exit code of what failed."""

import json
import subprocess
import sys

from senet_tf1 import launch


def test_tf_config_of_each_worker():
    value = json.loads(launch.tf_config([11, 12], 1))
    assert value == {"cluster": {"worker": ["localhost:11", "localhost:12"]}, "task": {"type": "worker", "index": 1}}


def test_ports_are_different():
    assert len(set(launch.free_ports(20))) == 20


def test_a_usage_error_of_the_workers_is_the_exit_code_and_lines_say_whose_they_are():
    command = [sys.executable, "-m", "senet_tf1.launch", "--workers", "2", "--", "--batch_size=0"]
    done = subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True, timeout=120)
    assert done.returncode == 2
    for index in range(2):
        assert "[worker %d] ERROR: --batch_size=0: expected at least 1" % index in done.stdout
