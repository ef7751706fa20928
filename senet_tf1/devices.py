"""Where a run computes: the choice between GPU and CPU, and the session's configuration."""

import os
from typing import Callable, List

from senet_tf1 import compat, gpus
from senet_tf1.compat import tf
from senet_tf1.errors import ConfigError


def choose(wanted: str, number: int, report: Callable[[str], None]) -> List[str]:
    """The devices to place replicas on, said aloud.

    Args:
      wanted: "auto", "gpu" or "cpu".
      number: how many replicas.
      report: takes lines for people.

    Returns:
      "/gpu:0" ... or "/cpu:0" ...

    Raises:
      ConfigError: more GPUs are wanted than TensorFlow sees.
    """
    found = compat.gpus()
    if wanted == "gpu" and not found:
        raise ConfigError(
            "--device=gpu: TensorFlow %s sees no GPU (found: %s). Check the driver and that this TensorFlow is built "
            "for its CUDA version (docs/old_stacks.md), or use --device=cpu." % (compat.tensorflow_version(), names())
        )
    on_gpus = bool(found) and wanted != "cpu"
    if on_gpus and number > len(found):
        raise ConfigError(
            "--num_gpus=%d: TensorFlow sees %d: %s. Ask for at most that many, or use --device=cpu."
            % (number, len(found), ", ".join(found))
        )
    chosen = ["/%s:%d" % ("gpu" if on_gpus else "cpu", index) for index in range(number)]
    report("device: %s%s" % (", ".join(chosen), "" if found or wanted == "cpu" else " (no GPU found)"))
    if on_gpus:
        version, file = compat.tensorflow_version(), compat.tensorflow_file()
        warning = gpus.warning(version, file, gpus.compute_capabilities(), os.environ)
        if warning:
            report(warning)
    return chosen


def for_variables(wanted: str, chosen: List[str]) -> str:
    """Where the variables of towers live: "cpu", "gpu0", or "auto", next to the first tower.

    Raises:
      ConfigError: they are to live on a GPU, and the towers don't.
    """
    if wanted == "gpu0" and chosen[0] != "/gpu:0":
        raise ConfigError("--variable_device=gpu0: the towers are on %s" % ", ".join(chosen))
    return "/cpu:0" if wanted == "cpu" else chosen[0]


# On so few cores one op at a time with all cores beats several that share them and their caches: measured on two cores,
# SE_ResNeXt trains 1.14 times as fast, SE_Inception_v4 the same (docs/performance.md).
_FEW_CORES = 4


def session_config(chosen: List[str]) -> tf.ConfigProto:
    """Takes GPU memory as it is needed; hides the GPUs from a run on the CPU, so that it takes none of it."""
    config = tf.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    if chosen[0] == "/cpu:0":
        config.device_count["GPU"] = 0
        config.device_count["CPU"] = len(chosen)
        if (os.cpu_count() or 1) <= _FEW_CORES:
            config.inter_op_parallelism_threads = 1
    return config


def names() -> List[str]:
    """Names of the devices that TensorFlow sees."""
    return [device.name for device in tf.config.experimental.list_physical_devices()]
