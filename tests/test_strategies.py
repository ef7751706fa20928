"""tf.distribute's strategies: the results of towers, the same checkpoints, and refusals with the reason."""

import numpy as np
import pytest

from senet_tf1 import checkpoint, config, train
from senet_tf1.errors import ConfigError

TINY = {"cardinality": 2, "depth": 4, "blocks": 1, "dropout_rate": 0.2, "dataset": "synthetic", "train_examples": 47,
        "batch_size": 10, "learning_rate": 0.01, "seed": 3, "num_gpus": 2, "device": "cpu"}  # fmt: skip


def run(directory, steps=6, **changes):
    train.train(config.resolve(dict(TINY, model_dir=str(directory), train_steps=steps, **changes)), lambda line: None)
    return checkpoint.read(checkpoint.path_of(str(directory / "checkpoints"), steps))


def assert_close(ours, theirs, tolerance=1e-5):
    assert sorted(ours) == sorted(theirs)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, atol=tolerance * (1 + np.abs(value).max()), err_msg=name)


@pytest.mark.parametrize(
    "changes",
    [
        {"freeze_batch_norm": True, "all_reduce": "hierarchical", "accumulation_steps": 2, "batch_size": 5},
    ],
)
def test_mirrored_is_towers(tmp_path, changes):
    """On batches of 10 and a last one of 7."""
    towers = dict(changes)
    towers.pop("all_reduce", None)
    assert_close(run(tmp_path / "mirrored", strategy="mirrored", **changes), run(tmp_path / "towers", **towers))


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"bn_update": "mean"}, {"bn_update": "first"}, {"sync_batch_norm": True}])
def test_batch_norm_averages_are_those_of_towers(tmp_path, changes):
    ours = run(tmp_path / "mirrored", 1, strategy="mirrored", **changes)
    assert_close(ours, run(tmp_path / "towers", 1, **changes), 1e-4)


@pytest.mark.slow
def test_a_run_changes_from_one_to_the_other(tmp_path):
    whole = run(tmp_path / "towers", freeze_batch_norm=True)
    run(tmp_path / "both", 3, strategy="mirrored", freeze_batch_norm=True)
    assert_close(run(tmp_path / "both", 6, num_gpus=1, freeze_batch_norm=True), whole)
    run(tmp_path / "back", 3, freeze_batch_norm=True)
    assert_close(run(tmp_path / "back", 6, strategy="mirrored", freeze_batch_norm=True), whole)


class TestRefusals:
    def refused(self, tmp_path, **changes):
        with pytest.raises(ConfigError) as caught:
            run(tmp_path / "run", **changes)
        assert not (tmp_path / "run").exists()
        return str(caught.value)

    def test_nccl_without_gpus(self, tmp_path):
        assert "--all_reduce=nccl: NCCL adds up on GPUs" in self.refused(
            tmp_path, strategy="mirrored", all_reduce="nccl"
        )

    def test_flags_of_another_strategy(self, tmp_path):
        assert "--all_reduce: only --strategy=mirrored" in self.refused(tmp_path, all_reduce="nccl")
        assert "--variable_device: only --strategy=towers" in self.refused(
            tmp_path, strategy="mirrored", variable_device="cpu"
        )

    def test_numbers_of_workers(self, tmp_path):
        assert "needs at least two workers" in self.refused(tmp_path, strategy="multi_worker_mirrored")
        hosts = {"worker_hosts": "localhost:1,localhost:2", "task_index": 0}
        assert "is for one machine" in self.refused(tmp_path, strategy="mirrored", **hosts)
        message = self.refused(tmp_path, strategy="multi_worker_mirrored", **hosts)
        assert "--num_gpus=2: MultiWorkerMirroredStrategy takes all GPUs of a worker, or one CPU device" in message
