"""Where a run computes: the choice between GPU and CPU, and the session's configuration."""

import os
from typing import Callable, List

from senet_tf1 import compat, gpus
from senet_tf1.compat import tf
from senet_tf1.errors import ConfigError


def choose(wanted: str, report: Callable[[str], None]) -> str:
    """The device to place the network on, said aloud.

    Args:
      wanted: "auto", "gpu" or "cpu".
      report: takes lines for people.

    Returns:
      "/gpu:0" or "/cpu:0".

    Raises:
      ConfigError: a GPU is wanted and TensorFlow sees none.
    """
    found = compat.gpus()
    if wanted == "gpu" and not found:
        raise ConfigError(
            "--device=gpu: TensorFlow %s sees no GPU (found: %s). Check the driver and that this TensorFlow is built "
            "for its CUDA version (docs/old_stacks.md), or use --device=cpu." % (compat.tensorflow_version(), names())
        )
    device = "/gpu:0" if found and wanted != "cpu" else "/cpu:0"
    report("device: %s%s" % (device, "" if found or wanted == "cpu" else " (no GPU found)"))
    if device == "/gpu:0":
        version, file = compat.tensorflow_version(), compat.tensorflow_file()
        warning = gpus.warning(version, file, gpus.compute_capabilities(), os.environ)
        if warning:
            report(warning)
    return device


# On so few cores one op at a time with all cores beats several that share them and their caches: measured on two cores,
# SE_ResNeXt trains 1.14 times as fast, SE_Inception_v4 the same (docs/performance.md).
_FEW_CORES = 4


def session_config(device: str) -> tf.ConfigProto:
    """Takes GPU memory as it is needed; hides the GPUs from a run on the CPU, so that it takes none of it."""
    config = tf.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    if device == "/cpu:0":
        config.device_count["GPU"] = 0
        if (os.cpu_count() or 1) <= _FEW_CORES:
            config.inter_op_parallelism_threads = 1
    return config


def names() -> List[str]:
    """Names of the devices that TensorFlow sees."""
    return [device.name for device in tf.config.experimental.list_physical_devices()]
