"""A trained network, opened from its run's directory."""

import contextlib
from typing import Any, Dict, Iterator, NamedTuple, Tuple

from senet_tf1 import checkpoint, devices, graph, run_dir
from senet_tf1.compat import tf
from senet_tf1.config import Config
from senet_tf1.data.pipeline import Standardisation
from senet_tf1.errors import CheckpointError


class Trained(NamedTuple):
    """What runs the network, and what it was trained on."""

    session: tf.Session
    predictions: graph.Predictions
    scale: Standardisation
    class_names: Tuple[str, ...]
    image_shape: Tuple[int, int, int]
    checkpoint: str  # path prefix


@contextlib.contextmanager
def opened(settings: Config) -> Iterator[Trained]:
    """Builds the network of a run and restores the checkpoint that `settings` names; the session ends with the block.

    Raises:
      CheckpointError: there is no such run or checkpoint, or it is damaged.
    """
    recorded = run_dir.read(settings.model_dir)
    class_names, shape, scale = _data(recorded, settings.model_dir)
    path = run_dir.checkpoint_path(settings)
    chosen = devices.choose(settings.device, 1, lambda line: None)
    with tf.Graph().as_default(), tf.device(chosen[0]):
        predictions = graph.inference(settings, shape, len(class_names))
        saver = tf.train.Saver()
        with tf.Session(config=devices.session_config(chosen)) as session:
            checkpoint.restore(saver, session, path)
            yield Trained(session, predictions, scale, class_names, shape, path)


def _data(recorded: Dict[str, Any], directory: str) -> Tuple[Tuple[str, ...], Tuple[int, int, int], Standardisation]:
    """Class names, image shape and standardisation that a run recorded."""
    try:
        info = recorded["data"]
        height, width, channels = [int(size) for size in info["image_shape"]]
        scale = Standardisation(tuple(map(float, info["mean"])), tuple(map(float, info["deviation"])))
        return tuple(map(str, info["class_names"])), (height, width, channels), scale
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            "%s/%s does not say what the run was trained on: %s" % (directory, run_dir.CONFIG, error)
        ) from error
