"""What the original scripts call each of our variables.

The original gave no names: `tf.layers` numbered convolutions (`conv2d`, `conv2d_1`, ...) and dense layers in the order
they were built, and each batch norm had a scope such as `Inception_A0_batch1`. Our builders create their layers in the
same order, so walking our variables in creation order and counting gives the original's names.
"""

import itertools
import re
from typing import Dict, Iterator, List

ORIGINALS = ("se_resnext", "se_inception_v4", "se_inception_resnet_v2")


def original_names(arch: str, names: List[str], cardinality: int = 8) -> Dict[str, List[str]]:
    """For each of our variables the original's whose values it holds, side by side along the last axis.

    Args:
      arch: one of the three original networks.
      names: our variables' names, in creation order.
      cardinality: branches of an SE_ResNeXt block.

    Returns:
      {our name: the original's names}: one, or `cardinality` of them for what a block's branches hold.
    """
    convolutions, denses = _numbered("conv2d"), _numbered("dense")
    batch_norms = (_resnext_batch_norms if arch == "se_resnext" else _inception_batch_norms)(names, cardinality)
    layers, result = {}, {}  # type: Dict[str, List[str]], Dict[str, List[str]]
    for name in names:
        layer, leaf = name.rsplit("/", 1)
        if layer not in layers:
            if arch == "se_resnext" and layer.endswith("/conv1"):
                # Each branch was built whole before the next: 1x1, 3x3, 1x1, 3x3, ...
                branches = [next(convolutions) for _ in range(2 * cardinality)]
                layers[layer], layers[layer[:-1] + "2"] = branches[0::2], branches[1::2]
            elif layer in batch_norms:
                layers[layer] = batch_norms[layer]
            else:
                layers[layer] = [next(denses if re.search(r"/fc\d?$", layer) else convolutions)]
        result[name] = [_leaf(scope, leaf) for scope in layers[layer]]
    return result


def _leaf(scope: str, leaf: str) -> str:
    return "%s/%s/moving_mean/local_step" % (scope, scope) if leaf == "local_step" else "%s/%s" % (scope, leaf)


def _numbered(name: str) -> Iterator[str]:
    return itertools.chain([name], ("%s_%d" % (name, number) for number in itertools.count(1)))


def _resnext_batch_norms(names: List[str], cardinality: int) -> Dict[str, List[str]]:
    scopes = {"stem/bn": ["first_layer_batch1"]}
    for name in names:
        found = re.match(r"(stage(\d+)/block(\d+)/bn)1/gamma$", name)
        if found:
            prefix, stage, block = found.group(1), found.group(2), int(found.group(3)) - 1
            branch = "split_layer_%s_%d_splitN_" % (stage, block)
            scopes[prefix + "1"] = ["%s%d_batch1" % (branch, number) for number in range(cardinality)]
            scopes[prefix + "2"] = ["%s%d_batch2" % (branch, number) for number in range(cardinality)]
            scopes[prefix + "3"] = ["trans_layer_%s_%d_batch1" % (stage, block)]
    return scopes


def _inception_batch_norms(names: List[str], cardinality: int) -> Dict[str, List[str]]:
    del cardinality
    scopes = {"stem/bn": ["stem_batch1"], "reduction_a/bn": ["Reduction_A_batch1"]}
    scopes["reduction_b/bn"] = ["Reduction_B_batch1"]
    for name in names:
        found = re.match(r"(block_(\w)(\d+)/bn)/gamma$", name)
        if found:
            scopes[found.group(1)] = ["Inception_%s%d_batch1" % (found.group(2).upper(), int(found.group(3)) - 1)]
    return scopes
