"""Evaluation: every example counted exactly once, whatever the batch size."""

from typing import Any, Callable, Dict, NamedTuple, Optional

import numpy as np

from senet_tf1 import data
from senet_tf1.compat import tf
from senet_tf1.data.pipeline import Standardisation
from senet_tf1.graph import Predictions

TOP_K = 5


class Result(NamedTuple):
    """Figures over all examples of a split."""

    loss: float  # mean cross-entropy, nats
    accuracy: float  # share of examples whose label has the largest logit
    top5: float  # share of examples whose label is among the five largest logits
    examples: int
    class_correct: np.ndarray  # int [classes]
    class_examples: np.ndarray  # int [classes]

    def record(self, step: int, epoch: float) -> Dict[str, Any]:
        """The line of metrics.jsonl."""
        return {
            "split": "test",
            "step": step,
            "epoch": epoch,
            "loss": self.loss,
            "accuracy": self.accuracy,
            "top5": self.top5,
            "examples": self.examples,
        }


def evaluate(
    session: tf.Session,
    predictions: Predictions,
    split: data.Split,
    scale: Standardisation,
    batch_size: int,
    stop: Callable[[], bool] = lambda: False,
) -> Optional[Result]:
    """Runs the network over a split.

    Args:
      session: holds the weights.
      predictions: the network's outputs.
      split: images uint8 [n, height, width, channels] and labels int [n].
      scale: the training set's standardisation.
      batch_size: examples a run; the last one may be smaller.
      stop: asked before each batch; True ends the evaluation without a result.

    Returns:
      The figures; None if stopped.
    """
    classes = predictions.logits.shape.as_list()[-1]
    ranks, losses = [], []
    for start in range(0, len(split.labels), batch_size):
        if stop():
            return None
        images, labels = split.images[start : start + batch_size], split.labels[start : start + batch_size]
        feeds = {predictions.images: scale.apply(images), predictions.labels: labels}
        batch_losses, batch_ranks = session.run([predictions.losses, predictions.ranks], feeds)
        losses.append(batch_losses)
        ranks.append(batch_ranks)
    rank, loss = np.concatenate(ranks), np.concatenate(losses)
    if len(rank) != len(split.labels):
        raise AssertionError("evaluated %d of %d examples" % (len(rank), len(split.labels)))
    return Result(
        loss=float(np.mean(loss, dtype=np.float64)),
        accuracy=float(np.mean(rank == 0)),
        top5=float(np.mean(rank < TOP_K)),
        examples=len(rank),
        class_correct=np.bincount(split.labels[rank == 0], minlength=classes),
        class_examples=np.bincount(split.labels, minlength=classes),
    )


def table(result: Result, class_names) -> str:
    """The figures, and a line for each class."""
    lines = ["%-12s %8s %8s %9s" % ("class", "correct", "examples", "accuracy")]
    for name, correct, examples in zip(class_names, result.class_correct, result.class_examples):
        lines.append(
            "%-12s %8d %8d %9s" % (name, correct, examples, "%.4f" % (correct / examples) if examples else "-")
        )
    summary = "loss %.4f  top-1 %.4f  top-5 %.4f  examples %d"
    return "\n".join(lines + [summary % (result.loss, result.accuracy, result.top5, result.examples)])
