"""Learning-rate schedules: pure functions of the number of updates made, in plain Python.

The training loop feeds their value through the placeholder `learning_rate`, as the original scripts did.
"""

import math

# The original divides by 10 at the start of each epoch whose number, counted from 1, divides by 30.
STEP_EPOCHS = 30
STEP_FACTOR = 0.1


def learning_rate(
    step: int, schedule: str, base: float, steps_per_epoch: int, total_steps: int, warmup_steps: int
) -> float:
    """The learning rate of the update after `step` updates.

    Args:
      step: updates made so far, from 0.
      schedule: "step", "cosine" (Loshchilov & Hutter 2017, without restarts) or "constant".
      base: the rate after warm-up.
      steps_per_epoch: updates of an epoch.
      total_steps: updates of the run, where the cosine reaches 0.
      warmup_steps: the rate rises linearly, from base / warmup_steps at the first update, and multiplies the schedule.
    """
    if schedule == "step":
        rate = base * STEP_FACTOR ** ((step // steps_per_epoch + 1) // STEP_EPOCHS)
    elif schedule == "cosine":
        rate = base * 0.5 * (1.0 + math.cos(math.pi * min(step, total_steps) / total_steps))
    elif schedule == "constant":
        rate = base
    else:
        raise ValueError("schedule=%r: expected step, cosine or constant" % schedule)
    return rate * min(1.0, (step + 1) / warmup_steps) if warmup_steps else rate
