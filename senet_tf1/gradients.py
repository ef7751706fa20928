"""Gradients: which variables have one, clipping, and the norm that is logged."""

from typing import List, Optional, Sequence, Tuple

from senet_tf1.compat import tf


def with_gradient(names: Sequence[str], replicas: List[List[Optional[tf.Tensor]]]) -> List[int]:
    """Indices of the variables that have a gradient.

    Args:
      names: of the variables.
      replicas: for each replica its gradients, one a variable; None where the loss does not depend on the variable.

    Raises:
      ValueError: a variable has a gradient in some replicas only; names it and those that have none.
    """
    problems, indices = [], []
    for index, name in enumerate(names):
        missing = [number for number, gradients in enumerate(replicas) if gradients[index] is None]
        if not missing:
            indices.append(index)
        elif len(missing) < len(replicas):
            problems.append("%s: none in tower %s" % (name, ", ".join(str(number) for number in missing)))
    if problems:
        raise ValueError(
            "these variables have a gradient in some of the %d towers only; every tower must build the same network:\n"
            "  %s" % (len(replicas), "\n  ".join(problems))
        )
    return indices


def clip(gradients: List[tf.Tensor], mode: str, limit: float) -> Tuple[List[tf.Tensor], tf.Tensor]:
    """Clips gradients and returns the global norm they had before.

    Where the norm is infinite or NaN the gradients are not usable and nothing is hidden: the norm says so (TF 1.x's own
    `clip_by_global_norm` turns gradients into zeros when the norm is infinite).

    Args:
      gradients: one tensor a variable.
      mode: "none"; "global_norm": all are scaled by limit / max(norm, limit), of their joint norm (Pascanu 2013);
        "norm": each by its own norm; "value": each entry is limited to [-limit, limit].
      limit: largest norm or value; not used by "none".

    Returns:
      The clipped gradients, and the global norm before clipping, float32 [].
    """
    norm = tf.global_norm(gradients)
    if mode == "none":
        return gradients, norm
    if mode == "global_norm":
        scale = limit / tf.maximum(norm, limit)
        return [gradient * scale for gradient in gradients], norm
    if mode == "norm":
        return [tf.clip_by_norm(gradient, limit) for gradient in gradients], norm
    if mode == "value":
        return [tf.clip_by_value(gradient, -limit, limit) for gradient in gradients], norm
    raise ValueError("mode=%r: expected none, global_norm, norm or value" % mode)
