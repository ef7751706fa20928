"""Gradient checkpointing: a block's activations are forgotten and computed again in the backward pass.

Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016: what stays in memory is each block's input, and the
activations of one block at a time; the price is a second forward pass.
"""

from typing import Callable

from senet_tf1 import replicas
from senet_tf1.compat import tf


def block(function: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """`function(x)`, with variables in the current variable scope; recomputed where the active replica says so."""
    replica = replicas.active()
    if replica is None or not replica.recompute:
        return function(x)
    scope = tf.get_variable_scope()

    @tf.custom_gradient
    def checkpointed(x):
        def gradient(dy, variables=None):
            variables = variables or []
            # Not before the gradient arrives, or all blocks' activations would be there again at the same time.
            with tf.control_dependencies([dy]):
                again = tf.identity(x)
            with tf.variable_scope(scope, reuse=True), replicas.building(replica._replace(recomputing=True)):
                y = function(again)
            gradients = tf.gradients(y, [again] + list(variables), dy)
            return gradients[0], gradients[1:]

        return function(x), gradient

    return checkpointed(x)
