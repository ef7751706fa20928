"""The training run: resumed is uninterrupted to the bit, nothing bad is saved, every refusal comes before writing."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from senet_tf1 import checkpoint, config, graph, train
from senet_tf1.compat import tf
from senet_tf1.data import pipeline
from senet_tf1.errors import CheckpointError, ConfigError, NumericsError

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Steps of 10 examples, 10 an epoch: small, and with everything in it (dropout, a partial window, an epoch's end).
TINY = {"cardinality": 2, "depth": 4, "blocks": 1, "dropout_rate": 0.2, "dataset": "synthetic", "train_examples": 100,
        "batch_size": 10, "log_every": 4, "learning_rate": 0.01, "seed": 3}  # fmt: skip


def settings(tmp_path, **changes):
    return config.resolve(dict(TINY, model_dir=str(tmp_path / "run"), **changes))


def run(tmp_path, **changes):
    lines = []
    outcome = train.train(settings(tmp_path, **changes), lines.append)
    return outcome, lines


def command(model_dir, *more):
    flags = ["--%s=%s" % item for item in TINY.items()]
    return [sys.executable, os.path.join(ROOT, "run_cifar10.py"), "--model_dir=%s" % model_dir] + flags + list(more)


def metrics(model_dir):
    """Every line but for the speed, which no two runs share."""
    with open(os.path.join(str(model_dir), "metrics.jsonl")) as handle:
        records = [json.loads(line) for line in handle]
    for record in records:
        record.pop("images_per_second", None)
    return records


def weights(model_dir, step):
    return checkpoint.read(checkpoint.path_of(os.path.join(str(model_dir), "checkpoints"), step))


def assert_same_run(a, b, step):
    ours, theirs = weights(a, step), weights(b, step)
    assert set(ours) == set(theirs)
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)
    assert metrics(a) == metrics(b)
    with open(os.path.join(str(a), "logs.txt")) as x, open(os.path.join(str(b), "logs.txt")) as y:
        assert x.read() == y.read()


class TestFiles:
    def test_what_a_run_leaves(self, tmp_path):
        outcome, lines = run(tmp_path, train_steps=25)
        directory = tmp_path / "run"
        assert outcome.step == 25 and not outcome.stopped and outcome.test["examples"] == 500
        records = metrics(directory)
        assert [r["step"] for r in records if r["split"] == "train"] == [4, 8, 10, 12, 16, 20, 24, 25]
        assert [r["step"] for r in records if r["split"] == "test"] == [10, 20, 25]
        assert set(records[0]) == {
            "split", "step", "epoch", "loss", "accuracy", "learning_rate", "gradient_norm", "loss_scale",
            "skipped_steps",
        }  # fmt: skip
        assert set(records[-1]) == {"split", "step", "epoch", "loss", "accuracy", "top5", "examples"}
        assert records[0]["epoch"] == 0.4 and records[0]["learning_rate"] == 0.01
        logs = (directory / "logs.txt").read_text().splitlines()
        last = metrics(directory)[-1]
        assert len(logs) == 3 and logs[2].startswith("epoch: 3/3, train_loss: ")
        assert logs[2].endswith("test_loss: %.4f, test_acc: %.4f" % (last["loss"], last["accuracy"]))
        assert checkpoint.steps(str(directory / "checkpoints")) == [10, 20, 25]
        assert [name for name in os.listdir(str(directory)) if name.startswith("events.out.tfevents")]
        recorded = json.loads((directory / "config.json").read_text())
        assert recorded["depth"] == 4 and recorded["versions"]["tensorflow"] and recorded["devices"]
        assert len(recorded["data"]["mean"]) == 3

    def test_the_epoch_s_line_is_the_mean_over_its_examples(self, tmp_path):
        run(tmp_path, train_steps=10)
        records = [r for r in metrics(tmp_path / "run") if r["split"] == "train"]
        examples = np.diff([0] + [10 * r["step"] for r in records])
        loss = np.average([r["loss"] for r in records], weights=examples)
        assert "train_loss: %.4f, " % loss in (tmp_path / "run" / "logs.txt").read_text()

    def test_evaluations_every_other_epoch_and_at_the_end(self, tmp_path):
        run(tmp_path, train_steps=50, epochs_between_evals=2, log_every=10)
        records = metrics(tmp_path / "run")
        assert [record["step"] for record in records if record["split"] == "test"] == [20, 40, 50]
        lines = (tmp_path / "run" / "logs.txt").read_text().splitlines()
        assert [line.split(",")[0] for line in lines] == ["epoch: 2/5", "epoch: 4/5", "epoch: 5/5"]
        # The line is of its own epoch, not of all since the last evaluation.
        last = [record["loss"] for record in records if record["split"] == "train" and record["step"] == 40]
        assert "train_loss: %.4f" % last[0] in lines[1]

    def test_the_saved_graph_can_be_used_by_its_names(self, tmp_path):
        """As TF1 users do: import the meta graph, restore, feed `images` and `is_training`, fetch `logits`."""
        run(tmp_path, train_steps=2)
        path = str(tmp_path / "run" / "checkpoints" / "model.ckpt-2")
        with tf.Graph().as_default(), tf.Session() as session:
            tf.train.import_meta_graph(path + ".meta").restore(session, path)
            images = np.random.RandomState(0).standard_normal((4, 32, 32, 3))
            inferred = session.run("logits:0", {"images:0": images})
            trained = session.run("logits:0", {"images:0": images, "is_training:0": True})
            assert inferred.shape == (4, 10) and np.abs(inferred - trained).max() > 1e-3
            assert session.run("labels:0", {"labels:0": [1, 2]}).tolist() == [1, 2]


class TestResume:
    def test_in_one_process(self, tmp_path):
        """Stopped in the middle of an epoch and of a window, then finished: the same as in one go."""
        run(tmp_path / "whole", train_steps=25)
        _stop_after(13, tmp_path / "parts", 25)
        run(tmp_path / "parts", train_steps=25)
        assert_same_run(tmp_path / "whole" / "run", tmp_path / "parts" / "run", 25)

    @pytest.mark.slow
    def test_after_sigkill_at_any_moment(self, tmp_path):
        """A real process, really killed, several times, wherever it happened to be."""
        run(tmp_path / "whole", train_steps=60)
        killed, random = tmp_path / "killed", np.random.RandomState(0)
        more = ["--train_steps=60", "--checkpoint_minutes=0.01"]
        kills = 0
        while True:
            process = subprocess.Popen(command(killed, *more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            wait_for((killed / "checkpoints").exists)
            time.sleep(random.uniform(0, 6))
            if kills < 3 and process.poll() is None:
                process.kill()
                kills += 1
            output = process.communicate()[0].decode()
            if process.returncode == 0:
                break
            assert process.returncode == -signal.SIGKILL, output
        assert kills == 3 or "step 60" in output
        assert_same_run(tmp_path / "whole" / "run", killed, 60)

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_saves_and_ends_well(self, tmp_path, number):
        directory = tmp_path / "run"
        process = subprocess.Popen(
            command(directory, "--train_steps=100000"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        wait_for(lambda: process.poll() is not None or (directory / "metrics.jsonl").exists())
        process.send_signal(number)
        output = process.communicate(timeout=60)[0].decode()
        assert process.returncode == 0, output
        step = checkpoint.steps(str(directory / "checkpoints"))[-1]
        assert "stopped at step %d; the same command goes on from there" % step in output
        assert max(record["step"] for record in metrics(directory)) <= step

    def test_a_run_that_is_over_is_left_as_it_is(self, tmp_path):
        run(tmp_path, train_steps=12)
        before = metrics(tmp_path / "run")
        outcome, lines = run(tmp_path, train_steps=12)
        assert "resumed from step 12 of 12" in lines and outcome.test == before[-1]
        assert metrics(tmp_path / "run") == before

    def test_a_damaged_newest_checkpoint_is_passed_over(self, tmp_path):
        run(tmp_path / "whole", train_steps=25)
        _stop_after(20, tmp_path, 25)
        data_file = tmp_path / "run" / "checkpoints" / "model.ckpt-20.data-00000-of-00001"
        data_file.write_bytes(data_file.read_bytes()[:1000])
        _, lines = run(tmp_path, train_steps=25)
        assert any("model.ckpt-20 can't be read and is passed over" in line for line in lines)
        assert "resumed from step 10 of 25" in lines
        assert_same_run(tmp_path / "whole" / "run", tmp_path / "run", 25)

    def test_must_and_never(self, tmp_path):
        with pytest.raises(CheckpointError, match="--resume=must: there is no checkpoint"):
            run(tmp_path, train_steps=2, resume="must")
        assert not (tmp_path / "run").exists()
        run(tmp_path, train_steps=2, resume="never")
        with pytest.raises(ConfigError, match="--resume=never: .* holds a run of 2 steps"):
            run(tmp_path, train_steps=4, resume="never")
        assert run(tmp_path, train_steps=4, resume="must")[0].step == 4

    def test_another_network_is_refused_and_named(self, tmp_path):
        run(tmp_path, train_steps=2)
        before = (tmp_path / "run" / "config.json").read_text()
        with pytest.raises(ConfigError, match="another network:\n  --cardinality was 2 in this run and is now 3"):
            run(tmp_path, train_steps=4, cardinality=3)
        assert (tmp_path / "run" / "config.json").read_text() == before

    def test_other_data_are_refused(self, tmp_path):
        """A run that began on the sample does not go on on CIFAR-10 because that can now be fetched."""
        run(tmp_path, train_steps=2)
        with pytest.raises(ConfigError, match="a run on the data set synthetic, and --dataset=sample is now sample"):
            run(tmp_path, train_steps=4, dataset="sample")

    def test_other_changes_are_said(self, tmp_path):
        run(tmp_path, train_steps=2)
        _, lines = run(tmp_path, train_steps=4, learning_rate=0.02)
        assert "NOTE: --learning_rate was 0.01 in this run and is now 0.02" in lines


class TestNumerics:
    def test_a_loss_that_is_not_finite_stops_the_run_at_once(self, tmp_path, monkeypatch):
        run(tmp_path, train_steps=10)
        monkeypatch.setattr(graph, "_losses", _losses_that_overflow)
        with pytest.raises(NumericsError) as caught:
            run(tmp_path, train_steps=20)
        message = str(caught.value)
        assert message.startswith("step 11: the loss is ") and "Try a lower --learning_rate" in message
        assert "The last good checkpoint stays: %s" % (tmp_path / "run" / "checkpoints" / "model.ckpt-10") in message
        assert checkpoint.steps(str(tmp_path / "run" / "checkpoints")) == [10]
        assert max(record["step"] for record in metrics(tmp_path / "run")) == 10

    def test_too_high_a_learning_rate(self, tmp_path):
        with pytest.raises(NumericsError, match="First tensor that is not finite: [a-z]"):
            run(tmp_path, train_steps=20, learning_rate=1000.0, weight_decay=1e10, clip_mode="none")
        assert checkpoint.steps(str(tmp_path / "run" / "checkpoints")) == []

    def test_a_step_that_is_not_finite_changes_nothing(self):
        """Weights, slots, moving averages, sums, step: as before; and the first bad tensor is named."""
        built = graph.training(config.resolve(TINY), _batch(), 10)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            step = [built.loss, built.update]
            feeds = {built.learning_rate: 0.1}
            session.run(step, feeds)
            before = session.run(tf.global_variables())
            feeds[built.predictions.images] = np.full((4, 32, 32, 3), np.inf)
            feeds[built.predictions.labels] = np.zeros(4)
            session.run(step, feeds)
            for old, new in zip(before, session.run(tf.global_variables())):
                np.testing.assert_array_equal(old, new)
            feeds.pop(built.learning_rate)
            assert built.checks.first_bad(session.run(built.checks.finite, feeds)) == "images"
            assert session.run(built.checks.variables_finite)

    def test_a_bad_weight_is_named_first(self):
        built = graph.training(config.resolve(TINY), _batch(), 10)
        weight = [v for v in tf.trainable_variables() if v.op.name == "stage2/block1/conv2/kernel"][0]
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert built.checks.first_bad(session.run(built.checks.finite)) is None
            session.run(weight.assign(weight * np.inf))
            found = built.checks.first_bad(session.run(built.checks.finite))
            assert found == "weights stage2/block1/conv2/kernel"
            assert not session.run(built.checks.variables_finite)


class TestLearning:
    @pytest.mark.slow
    def test_the_synthetic_set_is_learnt(self, tmp_path):
        outcome, _ = run(tmp_path, train_steps=200, train_examples=2000, learning_rate=0.05, dropout_rate=0.0)
        assert outcome.test["accuracy"] > 0.9

    def test_one_step_is_the_original_s_update(self):
        """Nesterov momentum on mean cross-entropy + weight decay, by hand from the gradients."""
        built = graph.training(config.resolve(dict(TINY, dropout_rate=0.0)), _batch(), 10)
        variables = tf.trainable_variables()
        decay = 5e-4 * tf.add_n([tf.nn.l2_loss(variable) for variable in variables])
        gradients = tf.gradients(built.loss + decay, variables)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            before, gradient = session.run([variables, gradients])
            session.run(built.update, {built.learning_rate: 0.1})
            after = session.run(variables)
        for old, g, new in zip(before, gradient, after):
            # The first accumulator is g, and Nesterov's step is g + 0.9 * accumulator.
            np.testing.assert_allclose(new, old - 0.1 * 1.9 * g, rtol=1e-4, atol=1e-6)


class TestInitFrom:
    def test_ours_with_other_classes_or_the_same(self, tmp_path):
        run(tmp_path / "a", train_steps=3)
        path = str(tmp_path / "a" / "run" / "checkpoints" / "model.ckpt-3")
        _, lines = run(tmp_path / "b", train_steps=1, init_from=path, learning_rate=1e-12)
        assert "restored 67 variables from %s; 0 keep their initial values; 0 in the checkpoint" % path in "\n".join(
            lines
        )
        ours, theirs = weights(tmp_path / "a" / "run", 3), weights(tmp_path / "b" / "run", 1)
        np.testing.assert_allclose(theirs["stem/conv/kernel"], ours["stem/conv/kernel"], atol=1e-9)

    def test_a_missing_one_is_named_before_anything_is_written(self, tmp_path):
        with pytest.raises(CheckpointError, match="there is no checkpoint nowhere"):
            run(tmp_path, train_steps=1, init_from="nowhere")
        assert not (tmp_path / "run").exists()


def wait_for(condition, seconds=120):
    deadline = time.time() + seconds
    while not condition():
        assert time.time() < deadline
        time.sleep(0.05)


def _stop_after(steps, directory, total):
    """Trains to `total`, but asked to stop at step `steps` as a signal would."""
    original = train.StopRequest.__call__
    trainers = []

    def started(self, session):
        trainers.append(self)
        return start(self, session)

    start = train.Trainer.start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.Trainer, "start", started)
        patch.setattr(train.StopRequest, "__call__", lambda self: original(self) or trainers[-1].step >= steps)
        return train.train(settings(directory, train_steps=total), lambda line: None)


def _losses_that_overflow(logits, labels):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits) + np.float32(np.inf)


def _batch():
    random = np.random.RandomState(0)
    images = pipeline.Standardisation((128.0,) * 3, (60.0,) * 3).apply(random.randint(0, 256, (8, 32, 32, 3)))
    return tf.constant(images), tf.constant(random.randint(0, 10, 8), tf.int32)
