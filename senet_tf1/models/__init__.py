"""The networks, by name: `build("se_resnext", images, is_training, num_classes=10, **options)`."""

import inspect
from typing import Any, Dict, List

from senet_tf1 import layers, replicas
from senet_tf1.compat import tf
from senet_tf1.models.se_inception_resnet_v2 import se_inception_resnet_v2
from senet_tf1.models.se_inception_v4 import se_inception_v4
from senet_tf1.models.se_resnext import se_resnext

_NETWORKS = {network.__name__: network for network in (se_resnext, se_inception_v4, se_inception_resnet_v2)}


def names() -> List[str]:
    """Registered architectures, sorted."""
    return sorted(_NETWORKS)


def options(name: str) -> Dict[str, Any]:
    """The options that network `name` takes, with their defaults. Raises ValueError for an unknown network."""
    parameters = inspect.signature(_network(name)).parameters
    return {key: parameters[key].default for key in parameters if key not in ("images", "is_training", "num_classes")}


def build(name: str, images: tf.Tensor, is_training: layers.Training, num_classes: int = 10, **options) -> tf.Tensor:
    """Adds network `name` to the current graph.

    In training mode the ops that move the batch-norm averages are added to `tf.GraphKeys.UPDATE_OPS`, as TF1 users
    expect: run them once a step, with the update. (Not in a training graph of this package, where the averages move by
    the statistics of all replicas.)

    Args:
      name: one of `names()`.
      images: float tensor [batch, height, width, 3], already standardised.
      is_training: bool, or bool tensor []: batch norm by the batch's statistics, dropout on.
      num_classes: number of logits.
      **options: the network's own, see `options(name)`.

    Returns:
      Logits, float32 [batch, num_classes].

    Raises:
      ValueError: an unknown network, images it can't take, or an option out of its range.
      TypeError: an option that this network doesn't have.
    """
    network, seen = _network(name), len(tf.get_collection(layers.MOMENTS))
    logits = network(images, is_training, num_classes, **options)
    if replicas.active() is not None:
        return logits
    for moments in tf.get_collection(layers.MOMENTS)[seen:]:
        for op in layers.move_averages(moments):
            tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, op)
    return logits


def _network(name: str):
    if name not in _NETWORKS:
        raise ValueError("there is no network %r; there are %s" % (name, ", ".join(names())))
    return _NETWORKS[name]
