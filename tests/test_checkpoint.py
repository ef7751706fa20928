"""Checkpoints: what is kept, what is passed over, and what the original's variables become."""

import os

import numpy as np
import original
import pytest

from senet_tf1 import checkpoint, models
from senet_tf1.compat import tf
from senet_tf1.errors import CheckpointError


@pytest.fixture
def session_and_saver():
    variable = tf.get_variable("weights", [1000], initializer=tf.zeros_initializer(), use_resource=True)
    tf.get_variable("more", [3], initializer=tf.ones_initializer(), use_resource=True)
    saver = tf.train.Saver(max_to_keep=None, save_relative_paths=True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        yield session, saver, variable


def save(session_and_saver, directory, steps):
    session, saver, variable = session_and_saver
    assign = variable.assign(tf.fill([1000], tf.cast(tf.placeholder_with_default(0, [], name="n"), tf.float32)))
    for step in steps:
        session.run(assign, {"n:0": step})
        checkpoint.save(saver, session, directory, step)


class TestRetention:
    def test_newest_five_and_the_best(self, session_and_saver, tmp_path):
        directory = str(tmp_path / "checkpoints")
        save(session_and_saver, directory, range(1, 9))
        checkpoint.prune(directory, best_step=2)
        assert checkpoint.steps(directory) == [2, 4, 5, 6, 7, 8]
        names = {name.split(".")[1] for name in os.listdir(directory) if "." in name}
        assert names == {"ckpt-%d" % step for step in (2, 4, 5, 6, 7, 8)}

    def test_the_state_file_names_them_by_relative_paths(self, session_and_saver, tmp_path):
        directory = str(tmp_path / "a")
        save(session_and_saver, directory, range(1, 8))
        checkpoint.prune(directory, None)
        os.rename(directory, str(tmp_path / "b"))
        assert tf.train.latest_checkpoint(str(tmp_path / "b")) == str(tmp_path / "b" / "model.ckpt-7")
        assert str(tmp_path) not in (tmp_path / "b" / "checkpoint").read_text()

    def test_what_a_crashed_save_left_is_no_checkpoint_and_goes(self, session_and_saver, tmp_path):
        directory = str(tmp_path)
        save(session_and_saver, directory, [3])
        (tmp_path / "model.ckpt-4.data-00000-of-00001").write_bytes(b"data without an index")
        (tmp_path / "model.ckpt-5_temp_abc").mkdir()
        (tmp_path / "model.ckpt-5_temp_abc" / "part").write_bytes(b"")
        assert checkpoint.steps(directory) == [3]
        checkpoint.prune(directory, None)
        assert not [name for name in os.listdir(directory) if "ckpt-4" in name or "ckpt-5" in name]


class TestDamage:
    @pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
    @pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
    def test_the_newest_is_reported_and_the_one_before_used(self, session_and_saver, tmp_path, suffix, damage):
        directory = str(tmp_path)
        save(session_and_saver, directory, [1, 2])
        path = checkpoint.path_of(directory, 2) + suffix
        if damage == "remove":
            os.unlink(path)
        else:
            with open(path, "rb+") as handle:
                content = bytearray(handle.read())
                content[len(content) // 2] ^= 0xFF
                handle.seek(0)
                handle.write(content)
                handle.truncate(len(content) // 2 if damage == "truncate" else len(content))
        session, saver, variable = session_and_saver
        lines = []
        restored = checkpoint.restore_newest(saver, session, directory, lines.append)
        assert set(session.run(variable)) == {float(restored)}
        if (suffix, damage) == (".index", "flip"):
            return  # not every byte of an index is read; whichever was restored is whole
        assert restored == 1
        if (suffix, damage) != (".index", "remove"):
            assert len(lines) == 1 and "model.ckpt-2 can't be read and is passed over" in lines[0]

    def test_none_left(self, session_and_saver, tmp_path):
        session, saver, _ = session_and_saver
        assert checkpoint.restore_newest(saver, session, str(tmp_path / "none"), print) is None
        (tmp_path / "model.ckpt-7.index").write_bytes(b"x")
        with pytest.raises(CheckpointError, match="none of the 1 checkpoints"):
            checkpoint.restore_newest(saver, session, str(tmp_path), lambda line: None)

    def test_a_directory_that_can_t_be_written(self, session_and_saver, tmp_path):
        session, saver, _ = session_and_saver
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(CheckpointError, match="can't save a checkpoint in .*Make room or make it writable"):
            checkpoint.save(saver, session, str(tmp_path / "file"), 1)

    def test_a_path_that_is_not_there(self, session_and_saver, tmp_path):
        session, saver, _ = session_and_saver
        with pytest.raises(CheckpointError, match="there is no checkpoint .*x"):
            checkpoint.restore(saver, session, str(tmp_path / "x"))
        with pytest.raises(CheckpointError, match="there is no checkpoint .*x"):
            checkpoint.read(str(tmp_path / "x"))


class TestFromOriginal:
    def test_every_problem_is_named(self):
        values = original.variables("se_resnext")
        del values["conv2d_7/kernel"]
        values["conv2d_900/kernel"] = np.zeros(3)
        values["dense/kernel"] = values["dense/kernel"].T
        with pytest.raises(ValueError) as caught:
            checkpoint.from_original("se_resnext", values)
        lines = str(caught.value).splitlines()[1:]
        assert sorted(line.strip() for line in lines) == [
            "missing: conv2d_7/kernel, of shape [1, 1, 64, 64]",
            "unexpected: conv2d_900/kernel",
            "wrong shape: dense/kernel has [16, 64], expected [64, 16]",
        ]

    def test_optimizer_slots_and_switches_are_ignored(self):
        values = original.variables("se_resnext")
        expected = checkpoint.from_original("se_resnext", values)
        values.update({"is_training": np.array(False), "conv2d/kernel/Momentum": np.zeros(1)})
        values["first_layer_batch1/first_layer_batch1/moving_mean/biased"] = np.zeros(64)
        found = checkpoint.from_original("se_resnext", values)
        assert all(np.array_equal(found[name], expected[name]) for name in expected) and len(found) == len(expected)

    def test_branches_lie_side_by_side(self):
        values = original.variables("se_resnext")
        found = checkpoint.from_original("se_resnext", values)
        for branch in range(8):
            part = slice(64 * branch, 64 * branch + 64)
            for kernel, number in (("conv1", 1), ("conv2", 2)):
                theirs = values["conv2d_%d/kernel" % (2 * branch + number)]
                np.testing.assert_array_equal(found["stage1/block1/%s/kernel" % kernel][..., part], theirs)
            theirs = values["split_layer_1_0_splitN_%d_batch2/beta" % branch]
            np.testing.assert_array_equal(found["stage1/block1/bn2/beta"][part], theirs)

    def test_local_step_is_taken_over(self):
        values = original.variables("se_resnext")
        values["first_layer_batch1/first_layer_batch1/moving_mean/local_step"] = np.float32(12)
        found = checkpoint.from_original("se_resnext", values)
        assert found["stem/bn/local_step"] == 12 and found["stage1/block1/bn1/local_step"] == 0

    def test_there_is_no_original_of_others(self):
        with pytest.raises(ValueError, match="no original of 'vgg'"):
            checkpoint.from_original("vgg", {})


TINY = {"cardinality": 2, "depth": 4, "blocks": 1}


class TestInitialValues:
    def _save(self, path, values):
        with tf.Graph().as_default(), tf.Session() as session:
            variables = [tf.get_variable(name, initializer=tf.constant(value)) for name, value in values.items()]
            session.run(tf.global_variables_initializer())
            return tf.train.Saver(variables).save(session, str(path))

    def _shapes(self, **options):
        with tf.Graph().as_default():
            models.build("se_resnext", tf.zeros([1, 8, 8, 3]), False, **options)
            return {v.op.name: v.shape.as_list() for v in tf.global_variables()}

    def test_what_fits_by_name_and_shape(self, tmp_path):
        values = {"stem/conv/kernel": np.ones((3, 3, 3, 64), np.float32), "head/fc/kernel": np.ones((5, 5), np.float32)}
        path = self._save(tmp_path / "c", values)
        shapes = self._shapes(**TINY)
        found, restored = checkpoint.initial_values(path, "se_resnext", TINY, shapes)
        assert list(found) == ["stem/conv/kernel"] == restored.restored
        assert restored.unused == ["head/fc/kernel"] and len(restored.left) == len(shapes) - 1
        assert "not restored: head/fc/kernel" in restored.table(path)

    def test_an_original_checkpoint(self, tmp_path):
        path = self._save(tmp_path / "ResNeXt.ckpt", original.variables("se_resnext"))
        found, restored = checkpoint.initial_values(path, "se_resnext", {}, self._shapes())
        assert not restored.left and not restored.unused
        np.testing.assert_array_equal(found["stem/conv/kernel"], original.variables("se_resnext")["conv2d/kernel"])

    def test_an_original_of_another_network(self, tmp_path):
        path = self._save(tmp_path / "x.ckpt", {"conv2d/kernel": np.zeros((3, 3, 3, 32), np.float32)})
        with pytest.raises(CheckpointError, match="is no original se_resnext checkpoint"):
            checkpoint.initial_values(path, "se_resnext", {}, self._shapes())

    def test_nothing_fits(self, tmp_path):
        path = self._save(tmp_path / "x.ckpt", {"other": np.zeros(3, np.float32)})
        with pytest.raises(CheckpointError, match="nothing in checkpoint .* fits se_resnext"):
            checkpoint.initial_values(path, "se_resnext", {}, self._shapes())
