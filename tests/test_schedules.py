"""Learning rates at the boundaries, by hand."""

import math

import pytest

from senet_tf1 import schedules

STEPS = 391  # of an epoch of CIFAR-10 at batch 128


def rate(step, schedule="step", base=0.1, steps_per_epoch=STEPS, total_steps=100 * STEPS, warmup_steps=0):
    return schedules.learning_rate(step, schedule, base, steps_per_epoch, total_steps, warmup_steps)


@pytest.mark.parametrize("epoch,expected", [(30, 0.01), (60, 0.001), (90, 0.0001)])
def test_step_divides_by_ten_at_the_start_of_epochs_30_60_90_counted_from_1(epoch, expected):
    first = (epoch - 1) * STEPS
    assert rate(first - 1) == pytest.approx(10 * expected, rel=1e-12)
    assert rate(first) == pytest.approx(expected, rel=1e-12)


def test_step_is_what_the_original_loop_computes():
    learning_rate = 0.1
    for epoch in range(1, 101):
        if epoch % 30 == 0:
            learning_rate = learning_rate / 10
        for step in ((epoch - 1) * STEPS, epoch * STEPS - 1):
            assert rate(step) == pytest.approx(learning_rate, rel=1e-12)


def test_cosine():
    assert rate(0, "cosine", total_steps=100) == 0.1
    assert rate(50, "cosine", total_steps=100) == pytest.approx(0.05)
    assert rate(25, "cosine", total_steps=100) == pytest.approx(0.05 * (1 + math.sqrt(0.5)))
    assert rate(100, "cosine", total_steps=100) == pytest.approx(0.0, abs=1e-17)


def test_warm_up_is_linear_and_multiplies():
    assert [rate(step, "constant", warmup_steps=4) for step in range(6)] == pytest.approx(
        [0.025, 0.05, 0.075, 0.1, 0.1, 0.1]
    )
    assert rate(1, "cosine", total_steps=4, warmup_steps=4) == pytest.approx(rate(1, "cosine", total_steps=4) / 2)


def test_unknown():
    with pytest.raises(ValueError, match="step, cosine or constant"):
        rate(0, "linear")
