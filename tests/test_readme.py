"""README's commands are right: their flags exist, its first job runs, and what comes after it works on its result."""

import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
from absl import flags as absl_flags

from senet_tf1 import config, flags
from senet_tf1.compat import tf

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def commands(path="README.md"):
    """Arguments of every call of the program in a document's code blocks."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as handle:
        blocks = re.findall(r"^```bash\n(.*?)^```", handle.read(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line.split("run_cifar10.py", 1)[1]) for line in lines if "run_cifar10.py " in line]


@pytest.mark.parametrize(
    "path", ["README.md", "docs/training.md", "docs/performance.md", "docs/old_stacks.md", "docs/distributed.md"]
)
def test_every_flag_exists_and_every_value_is_taken(path):
    for arguments in commands(path):
        values = absl_flags.FlagValues()
        flags.define(values)
        flags.parse(values, ["run_cifar10.py"] + arguments)
        config.resolve(flags.given(values))


def test_the_files_it_names_exist():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as handle:
        text = handle.read()
    for path in re.findall(r"\]\(([^)#:]+)\)", text) + re.findall(r"-c (docker/[^ ]+)", text):
        assert os.path.exists(os.path.join(ROOT, path)), path


@pytest.mark.slow
def test_the_first_job_and_what_comes_after_it(tmp_path):
    """With two steps on the sample in place of an epoch."""
    first, evaluate, predict = [
        [arguments for arguments in commands() if wanted in arguments][0]
        for wanted in ("--model_dir=runs/first", "--mode=evaluate", "--mode=predict")
    ]
    first = [argument for argument in first if not argument.startswith("--dataset")]
    out = _run(tmp_path, first + ["--dataset=sample", "--train_steps=2"])
    assert "accuracy" in out and os.path.exists(str(tmp_path / "runs" / "first" / "logs.txt"))
    assert "examples 500" in _run(tmp_path, evaluate)
    image = np.random.RandomState(0).randint(0, 256, (40, 50, 3)).astype(np.uint8)
    with tf.Session() as session:
        (tmp_path / "cat.png").write_bytes(session.run(tf.image.encode_png(image)))
        (tmp_path / "ship.jpg").write_bytes(session.run(tf.image.encode_jpeg(image)))
    assert '"image": "ship.jpg"' in _run(tmp_path, predict)


def _run(directory, arguments):
    command = [sys.executable, os.path.join(ROOT, "run_cifar10.py")] + arguments
    done = subprocess.run(command, cwd=str(directory), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
