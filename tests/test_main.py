"""The program from outside: help, exit codes, and each mode on a run that it made itself."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from senet_tf1 import config
from senet_tf1.compat import tf

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TINY = ["--cardinality=2", "--depth=4", "--blocks=1", "--dataset=synthetic", "--train_examples=100", "--batch_size=25"]


def program(directory, *flags):
    """Runs the program in a directory of its own; returns exit code, standard output and standard error."""
    done = subprocess.run(
        [sys.executable, os.path.join(ROOT, "run_cifar10.py")] + list(flags),
        cwd=str(directory),
        env=dict(os.environ, PYTHONPATH=ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("trained")
    code, out, err = program(directory, "--model_dir=run", "--train_steps=8", *TINY)
    assert code == 0, err
    return directory, out


def test_help_explains_every_flag(tmp_path):
    code, out, _ = program(tmp_path, "--help")
    assert code == 0
    for field in config.FIELDS:
        assert "--%s" % field.name in out or "--[no]%s" % field.name in out
        assert len(field.help) > 10
    assert "--images" in out


@pytest.mark.parametrize(
    "flags,message",
    [
        (["--no_such_flag=1"], "no_such_flag"),
        (["--batch_size=many"], "batch_size"),
        (["--batch_size=0"], "--batch_size=0: expected at least 1"),
        (["--arch=vgg"], "--arch=vgg: expected one of"),
        (["--mode=predict"], "--mode=predict needs image files"),
        (["stray.png"], "stray.png: file names are for --mode=predict only"),
        (["--device=gpu", "--dataset=synthetic"], "--device=gpu: TensorFlow"),
        (["--mode=evaluate", "--json"], "--json: only --mode=predict"),
    ],
)
def test_usage_errors_end_with_2_and_write_nothing(tmp_path, flags, message):
    if "--device=gpu" in flags and tf.config.experimental.list_physical_devices("GPU"):
        pytest.skip("there is a GPU")
    code, out, err = program(tmp_path, *flags)
    assert code == 2 and message in err and "Traceback" not in err
    assert os.listdir(str(tmp_path)) == []


def test_there_must_be_a_run_to_evaluate(tmp_path):
    code, _, err = program(tmp_path, "--mode=evaluate", "--model_dir=nowhere")
    assert code == 1 and "there is no run in nowhere" in err and "Traceback" not in err


def test_train_prints_accuracy_and_where_things_are(trained):
    directory, out = trained
    assert "step 8: test loss " in out and "500 examples" in out
    assert "checkpoints, metrics.jsonl and logs.txt are in run" in out


def test_evaluate_agrees_with_the_training_run(trained):
    directory, _ = trained
    with open(str(directory / "run" / "metrics.jsonl")) as handle:
        last = json.loads(handle.readlines()[-1])
    for batch in ("7", "500"):
        code, out, err = program(directory, "--mode=evaluate", "--model_dir=run", "--eval_batch_size=" + batch)
        assert code == 0, err
        expected = "loss %.4f  top-1 %.4f  top-5 %.4f  examples 500" % (last["loss"], last["accuracy"], last["top5"])
        assert expected in out and "grating9" in out


def test_evaluate_refuses_another_network_and_other_classes(trained):
    directory, _ = trained
    code, _, err = program(directory, "--mode=evaluate", "--model_dir=run", "--depth=8")
    assert code == 2 and "--depth was 4 in this run and is now 8" in err
    code, _, err = program(directory, "--mode=evaluate", "--model_dir=run", "--dataset=sample")
    assert code == 2 and "the network was trained on grating0" in err


def test_predict_prints_names_and_probabilities(trained):
    directory, _ = trained
    for name, shape in (("a.png", (32, 32, 3)), ("b.jpg", (70, 90, 3))):
        encode = tf.image.encode_png if name.endswith("png") else tf.image.encode_jpeg
        with tf.Graph().as_default(), tf.Session() as session:
            image = np.random.RandomState(0).randint(0, 256, shape).astype(np.uint8)
            (directory / name).write_bytes(session.run(encode(image)))
    code, out, err = program(directory, "--mode=predict", "--model_dir=run", "--images", "a.png", "b.jpg")
    assert code == 0, err
    assert out.splitlines()[0] == "a.png" and "b.jpg" in out and "grating" in out
    code, out, err = program(directory, "--mode=predict", "--model_dir=run", "--images", "a.png", "b.jpg", "--json")
    results = json.loads(out)
    assert [result["image"] for result in results] == ["a.png", "b.jpg"]
    for result in results:
        probabilities = [entry["probability"] for entry in result["probabilities"]]
        assert len(probabilities) == 10 and sum(probabilities) == pytest.approx(1, abs=1e-5)
        assert probabilities == sorted(probabilities, reverse=True)
    (directory / "c.png").write_bytes(b"no image")
    code, _, err = program(directory, "--mode=predict", "--model_dir=run", "--images=c.png")
    assert code == 1 and "c.png is no PNG or JPEG image" in err


def test_info_needs_no_data(tmp_path):
    code, out, err = program(tmp_path, "--mode=info")
    assert code == 0, err
    assert "4,086,720" in out and "32 x 32 x 64" in out
    assert os.listdir(str(tmp_path)) == []
