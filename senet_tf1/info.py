"""What a network is: output shape, parameters and multiply-adds of each of its parts, read off its graph."""

from collections import OrderedDict
from typing import List, NamedTuple, Tuple

from senet_tf1 import models
from senet_tf1.compat import tf
from senet_tf1.config import Config


class Part(NamedTuple):
    """One part of a network: stem, block or head."""

    name: str
    shape: Tuple[int, ...]  # of its output, without the batch
    parameters: int  # trainable
    multiply_adds: int  # of convolutions and matrix products, for one image


def parts(config: Config, shape: Tuple[int, int, int] = (32, 32, 3), num_classes: int = 10) -> List[Part]:
    """The parts in the order of the network, for one image of `shape` (height, width, channels)."""
    with tf.Graph().as_default() as built:
        images = tf.placeholder(tf.float32, (1,) + tuple(shape))
        models.build(config.arch, images, False, num_classes, **config.model_options())
        outputs, counts, parameters = OrderedDict(), {}, {}
        for op in built.get_operations():
            if not op.outputs or op.outputs[0].dtype != tf.float32 or "/" not in op.name:
                continue
            name = _part(op.name)
            if op.outputs[0].shape.rank and op.outputs[0].shape.as_list()[0] == 1 and op.type not in _NO_OUTPUT:
                outputs[name] = tuple(op.outputs[0].shape.as_list()[1:])
            counts[name] = counts.get(name, 0) + _multiply_adds(op)
        for variable in tf.trainable_variables():
            name = _part(variable.op.name)
            parameters[name] = parameters.get(name, 0) + variable.shape.num_elements()
    return [Part(name, outputs[name], parameters[name], counts[name]) for name in outputs if name in parameters]


def table(config: Config, rows: List[Part]) -> str:
    """The parts as a table, with totals."""
    lines = ["%s %s" % (config.arch, " ".join("%s=%s" % item for item in sorted(config.model_options().items())))]
    lines.append("%-16s %-16s %14s %18s" % ("part", "output shape", "parameters", "multiply-adds"))
    for row in rows:
        shape = " x ".join(str(size) for size in row.shape)
        lines.append(
            "%-16s %-16s %14s %18s" % (row.name, shape, "{:,}".format(row.parameters), "{:,}".format(row.multiply_adds))
        )
    parameters, multiply_adds = sum(row.parameters for row in rows), sum(row.multiply_adds for row in rows)
    lines.append("%-16s %-16s %14s %18s" % ("total", "", "{:,}".format(parameters), "{:,}".format(multiply_adds)))
    lines.append(
        "FLOPs of one image: %s forward (2 x multiply-adds), about three times that to train"
        % "{:,}".format(2 * multiply_adds)
    )
    return "\n".join(lines)


# Float ops with a leading 1 that are not activations.
_NO_OUTPUT = ("Const", "VarHandleOp", "ReadVariableOp", "Placeholder", "StatelessRandomUniform", "Fill")


def _part(name: str) -> str:
    """stage1/block2/conv1/kernel -> stage1/block2; stem/conv1/bias -> stem."""
    scopes = name.split("/")
    return "/".join(scopes[:2]) if scopes[0].startswith("stage") else scopes[0]


def _multiply_adds(op: tf.Operation) -> int:
    if op.type == "Conv2D":
        height, width, channels, filters = op.inputs[1].shape.as_list()
        _, out_height, out_width, _ = op.outputs[0].shape.as_list()
        return out_height * out_width * height * width * channels * filters
    if op.type == "MatMul":
        return op.inputs[1].shape.num_elements()
    return 0
