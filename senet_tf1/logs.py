"""What a run writes for people and for programs: metrics.jsonl, logs.txt, TensorBoard events, and the terminal.

A resumed run goes on in the same files: what lies after the restored step is cut off first (it will be written again,
the same), so that nothing is repeated.
"""

import json
import os
import sys
import time
from typing import Any, Dict, List, Optional

from senet_tf1.compat import tf
from senet_tf1.files import atomic_file

METRICS, LOGS = "metrics.jsonl", "logs.txt"


class RunLog:
    """The files of one run, from `step` on."""

    def __init__(self, directory: str, step: int, completed_epochs: int):
        """Cuts the files back to `step`; creates what is missing.

        Args:
          directory: the run's directory, which exists.
          step: the restored step; 0 for a new run.
          completed_epochs: epochs whose line in logs.txt stays.
        """
        self._metrics, self._logs = os.path.join(directory, METRICS), os.path.join(directory, LOGS)
        _keep_lines(self._metrics, lambda line: _step_of(line) <= step)
        _keep_lines(self._logs, lambda line: 0 < _epoch_of(line) <= completed_epochs)
        self._events = tf.summary.FileWriter(directory)
        # TensorBoard then drops what an earlier process wrote beyond this step.
        self._events.add_session_log(tf.SessionLog(status=tf.SessionLog.START), global_step=step)

    def metrics(self, record: Dict[str, Any]) -> None:
        """Appends one line to metrics.jsonl and the same numbers to TensorBoard."""
        _append_line(self._metrics, json.dumps(record))
        tags = [(key, value) for key, value in record.items() if isinstance(value, float) and key != "epoch"]
        values = [tf.Summary.Value(tag="%s/%s" % (record["split"], key), simple_value=value) for key, value in tags]
        self._events.add_summary(tf.Summary(value=values), record["step"])
        self._events.flush()

    def epoch(self, number: int, line: str) -> bool:
        """Appends an epoch's line to logs.txt, unless it is there already; says whether it was appended."""
        if os.path.exists(self._logs):
            with open(self._logs, encoding="utf-8") as handle:
                if any(_epoch_of(old) == number for old in handle):
                    return False
        _append_line(self._logs, line)
        return True

    def close(self) -> None:
        self._events.close()


class Progress:
    """The live line on a terminal (tqdm's, if it is installed), or a plain line now and then where there is none."""

    def __init__(self, step: int, total_steps: int, every: int):
        self._step, self._total, self._every = step, total_steps, every
        self._start = (time.monotonic(), step)
        self._bar = _tqdm(step, total_steps) if sys.stderr.isatty() else None
        self._live = sys.stderr.isatty()
        self._shown = None  # type: Optional[Tuple[float, ...]]

    def update(self, step: int, epoch: float, loss: float, accuracy: float, rate: float) -> None:
        """Shows the state after `step`; loss and accuracy smoothed over about ten steps.

        Args:
          step: updates made.
          epoch: epochs that are over, with fraction.
          loss: mean cross-entropy of the batch, in nats.
          accuracy: share of correct answers in the batch.
          rate: images a second.
        """
        shown = self._shown or (loss, accuracy)
        self._shown = tuple(0.9 * old + 0.1 * new for old, new in zip(shown, (loss, accuracy)))
        text = "epoch %.2f  loss %.4f  accuracy %.4f  %.1f images/s" % ((epoch,) + self._shown + (rate,))
        if self._bar is not None:
            self._bar.set_description_str(text, refresh=False)
            self._bar.update(step - self._step)
        elif self._live or step % self._every == 0 or step == self._total:
            line = "step %d/%d  %s  %s left" % (step, self._total, text, _duration(self._left(step)))
            print(
                "\r" + line + "\x1b[K" if self._live else line,
                file=sys.stderr,
                end="" if self._live else "\n",
                flush=True,
            )
        self._step = step

    def say(self, line: str) -> None:
        """Prints a line of its own."""
        if self._bar is not None:
            self._bar.clear()
        elif self._live:
            print("\r\x1b[K", file=sys.stderr, end="")
        print(line, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._live:
            print(file=sys.stderr)

    def _left(self, step: int) -> Optional[float]:
        seconds, done = time.monotonic() - self._start[0], step - self._start[1]
        return seconds / done * (self._total - step) if done else None


def read_metrics(directory: str) -> List[Dict[str, Any]]:
    """Every complete line of metrics.jsonl; none if there is no such file."""
    path = os.path.join(directory, METRICS)
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as handle:
        return [json.loads(line) for line in handle if _step_of(line) < _DAMAGED]


def best_step(directory: str) -> Optional[int]:
    """The step with the highest test accuracy (the first of several); None before the first evaluation."""
    tests = [record for record in read_metrics(directory) if record["split"] == "test"]
    return max(tests, key=lambda record: (record["accuracy"], -record["step"]))["step"] if tests else None


def write_json(path: str, value: Any) -> None:
    """Writes JSON for people to read, atomically."""
    with atomic_file(path, "w") as handle:
        json.dump(value, handle, indent=2, sort_keys=False)
        handle.write("\n")


_DAMAGED = float("inf")  # the step of a line that can't be read: after every other


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"]) if line.endswith("\n") else _DAMAGED
    except (ValueError, KeyError, TypeError):
        return _DAMAGED


def _epoch_of(line: str) -> int:
    number = line[len("epoch: ") :].split("/")[0]
    return int(number) if line.startswith("epoch: ") and line.endswith("\n") and number.isdigit() else 0


def _keep_lines(path: str, wanted) -> None:
    """Leaves only the wanted lines of a file, which need not exist."""
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8", errors="replace") as handle:
        lines = handle.readlines()
    kept = [line for line in lines if wanted(line)]
    if kept != lines:
        with atomic_file(path, "w") as handle:
            handle.writelines(kept)


def _append_line(path: str, line: str) -> None:
    """One write of the whole line, so that no reader and no crash sees the start of a line without its end."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, (line + "\n").encode("utf-8"))
    finally:
        os.close(descriptor)


def _tqdm(step: int, total: int):
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(initial=step, total=total, unit="step", dynamic_ncols=True, file=sys.stderr)


def _duration(seconds: Optional[float]) -> str:
    if seconds is None:
        return "?"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return "%d:%02d:%02d" % (hours, minutes, seconds)
