"""metrics.jsonl and logs.txt: whole lines, cut back to the restored step, no repeats."""

import json

import pytest

from senet_tf1 import logs


def record(step, split="train", **values):
    return dict({"split": split, "step": step, "epoch": step / 10, "loss": 1.0, "accuracy": 0.5}, **values)


def lines(path):
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_resumed_run_goes_on_without_repeats(tmp_path):
    log = logs.RunLog(str(tmp_path), 0, 0)
    for step in (1, 2, 3):
        log.metrics(record(step))
        assert log.epoch(step, "epoch: %d/3, ..." % step)
    log.close()
    log = logs.RunLog(str(tmp_path), 2, 2)
    assert lines(tmp_path / "metrics.jsonl") == [1, 2]
    assert not log.epoch(2, "epoch: 2/3, again")
    assert log.epoch(3, "epoch: 3/3, new")
    log.close()
    assert (tmp_path / "logs.txt").read_text().splitlines() == ["epoch: 1/3, ...", "epoch: 2/3, ...", "epoch: 3/3, new"]


@pytest.mark.parametrize(
    "rest", ['{"split": "train", "st', "\0\0\0", '{"split": "train", "step": 2}', "[]\n", "nonsense\n"]
)
def test_what_a_crash_left_of_a_line_is_removed(tmp_path, rest):
    (tmp_path / "metrics.jsonl").write_text(json.dumps(record(1)) + "\n" + rest)
    assert [entry["step"] for entry in logs.read_metrics(str(tmp_path))] == [1]
    logs.RunLog(str(tmp_path), 5, 0).close()
    assert lines(tmp_path / "metrics.jsonl") == [1]


def test_the_best_step_is_the_first_of_the_highest_accuracy(tmp_path):
    assert logs.best_step(str(tmp_path)) is None
    log = logs.RunLog(str(tmp_path), 0, 0)
    log.metrics(record(9, accuracy=0.99))
    for step, accuracy in ((10, 0.4), (20, 0.7), (30, 0.7), (40, 0.6)):
        log.metrics(record(step, "test", accuracy=accuracy))
    log.close()
    assert logs.best_step(str(tmp_path)) == 20


def test_a_live_line_on_a_terminal(capfd, monkeypatch):
    monkeypatch.setattr(logs.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(logs, "_tqdm", lambda step, total: None)
    progress = logs.Progress(0, 20, every=10)
    progress.update(1, 0.1, 2.0, 0.25, 100.0)
    progress.say("a line")
    progress.update(2, 0.2, 1.0, 0.25, 100.0)
    progress.close()
    out, err = capfd.readouterr()
    assert out == "a line\n"
    assert err.startswith("\rstep 1/20") and "loss 1.9000" in err and err.endswith("left\x1b[K\n")


def test_plain_progress_lines_where_there_is_no_terminal(capfd):
    progress = logs.Progress(0, 20, every=10)
    for step in range(1, 21):
        progress.update(step, step / 10, 2.0, 0.25, 100.0)
    progress.close()
    shown = capfd.readouterr().err.splitlines()
    assert len(shown) == 2
    assert shown[0].startswith("step 10/20  epoch 1.00  loss 2.0000  accuracy 0.2500  100.0 images/s  0:00:0")
    assert shown[1].endswith("0:00:00 left")
