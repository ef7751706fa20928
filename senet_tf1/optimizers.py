"""Optimizers: TensorFlow's own update kernels on variables and slots that are ours to place."""

from typing import List

from senet_tf1.compat import tf


def slots(variables: List[tf.Variable]) -> List[tf.Variable]:
    """One accumulator for each variable, named as `tf.train.MomentumOptimizer` names its own."""
    zeros = tf.zeros_initializer()
    return [
        tf.get_variable(
            v.op.name + "/Momentum", v.shape.as_list(), tf.float32, zeros, trainable=False, use_resource=True
        )
        for v in variables
    ]


def momentum(
    variable: tf.Variable, slot: tf.Variable, gradient: tf.Tensor, learning_rate: tf.Tensor, factor: float
) -> tf.Operation:
    """Nesterov's momentum (Sutskever 2013): a = factor * a + g; variable -= learning_rate * (g + factor * a)."""
    return tf.raw_ops.ResourceApplyMomentum(
        var=variable.handle, accum=slot.handle, lr=learning_rate, grad=gradient, momentum=factor, use_nesterov=True
    )
