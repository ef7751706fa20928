"""Finding where a number stopped being finite.

The checks are part of the graph and are run only when a step went wrong: one more forward pass then names the first
tensor that is NaN or infinite. They cost a training step nothing.
"""

from typing import List, NamedTuple, Optional

import numpy as np

from senet_tf1.compat import tf

# Ops whose results are looked at. ReLU and max pool are not: they can turn a NaN into a number.
_CHECKED = ("Conv2D", "BiasAdd", "MatMul", "FusedBatchNorm", "Sigmoid", "SparseSoftmaxCrossEntropyWithLogits")


class Checks(NamedTuple):
    """Names of tensors in the order they are computed, and for each whether all of it is finite."""

    names: List[str]
    finite: tf.Tensor  # bool [len(names)]
    variables_finite: tf.Tensor  # bool [], of the trainable variables alone

    def first_bad(self, finite: np.ndarray) -> Optional[str]:
        """The name of the first tensor that is not finite, given the value of `finite`; None if all are."""
        bad = np.flatnonzero(~finite)
        return self.names[bad[0]] if bad.size else None


def checks(
    images: tf.Tensor, forward_ops: List[tf.Operation], gradients: List[tf.Tensor], variables: List[tf.Variable]
) -> Checks:
    """Adds the checks: of the weights, the images, the forward pass, then the gradients from the last layer back."""
    weights = [("weights " + variable.op.name, variable.read_value()) for variable in variables]
    forward = [(op.name, op.outputs[0]) for op in forward_ops if op.type.startswith(_CHECKED)]
    backward = [("gradient of " + v.op.name, g) for v, g in zip(reversed(variables), reversed(gradients))]
    named = weights + [("images", images)] + forward + backward
    with tf.name_scope("checks"):
        finite = [tf.reduce_all(tf.is_finite(tensor)) for _, tensor in named]
        stacked, variables_finite = tf.stack(finite), tf.reduce_all(tf.stack(finite[: len(weights)]))
    return Checks([name for name, _ in named], stacked, variables_finite)
