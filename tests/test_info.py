"""Shapes, parameters and multiply-adds of the networks' parts."""

import pytest

from senet_tf1 import config, info

PARAMETERS = {"se_resnext": 4086720, "se_inception_v4": 51090026, "se_inception_resnet_v2": 51841866}


@pytest.mark.parametrize("arch", sorted(PARAMETERS))
def test_parameters_of_the_original_networks(arch):
    parts = info.parts(config.resolve({"arch": arch}))
    assert sum(part.parameters for part in parts) == PARAMETERS[arch]
    assert parts[0].name == "stem" and parts[-1].name == "head" and parts[-1].shape == (10,)


def test_se_resnext_by_hand():
    settings = config.resolve({"depth": 4, "cardinality": 2, "blocks": 1})
    parts = {part.name: part for part in info.parts(settings)}
    assert parts["stem"] == ("stem", (32, 32, 64), 3 * 3 * 3 * 64 + 2 * 64, 32 * 32 * 27 * 64)
    # 1x1 64 -> 8, two groups of 3x3 4 -> 4, 1x1 8 -> 128, then squeeze-and-excitation 128 -> 32 -> 128.
    parameters = 64 * 8 + 9 * 4 * 8 + 8 * 128 + 2 * 128 * 32 + 2 * (8 + 8 + 128)
    multiply_adds = 1024 * 64 * 8 + 256 * 9 * 4 * 8 + 256 * 8 * 128 + 2 * 128 * 32
    assert parts["stage2/block1"] == ("stage2/block1", (16, 16, 128), parameters, multiply_adds)


def test_the_inception_networks_stage_shapes():
    shapes = {part.name: part.shape for part in info.parts(config.resolve({"arch": "se_inception_v4"}))}
    assert shapes["stem"] == shapes["block_a4"] == (9, 9, 384)
    assert shapes["reduction_a"] == (4, 4, 1152) and shapes["block_b7"] == (4, 4, 1024)
    assert shapes["reduction_b"] == (1, 1, 2016) and shapes["block_c3"] == (1, 1, 1536)


def test_the_table_sums_up():
    settings = config.resolve({})
    lines = info.table(settings, info.parts(settings)).splitlines()
    assert lines[-2].split() == ["total", "4,086,720", "1,568,473,600"]
