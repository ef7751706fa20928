"""The one pair of GPU and TensorFlow that looks as if it worked: stock TensorFlow 1.x on Ampere and later.

Its wheels hold code for compute capability 3.5 to 7.0 and PTX for 7.0; on 8.0 and later it takes minutes to start,
hangs, or computes wrongly. NVIDIA's own builds of 1.15 do not (docs/old_stacks.md).
"""

import ctypes
import glob
import os
from typing import List, Mapping, Optional, Tuple

FIRST_UNSUPPORTED = (8, 0)
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


def warning(
    tensorflow_version: str, tensorflow_file: str, capabilities: List[Tuple[int, int]], environ: Mapping[str, str]
) -> Optional[str]:
    """What to print at start-up when such a pair is found, else None.

    Args:
      tensorflow_version: such as "1.15.5".
      tensorflow_file: `tensorflow.__file__`.
      capabilities: (major, minor) of each GPU.
      environ: the environment variables.
    """
    new = sorted({capability for capability in capabilities if capability >= FIRST_UNSUPPORTED})
    if not new or not tensorflow_version.startswith("1.") or _is_nvidia_build(tensorflow_file, environ):
        return None
    return (
        "WARNING: TensorFlow %s from PyPI has no code for compute capability %s (Ampere or newer): it may take minutes "
        "to start, hang, or compute wrongly. Use docker/Dockerfile.nvidia-tf1, TensorFlow 2.x "
        "(docker/Dockerfile.tf2-gpu), or --device=cpu; see docs/old_stacks.md."
        % (tensorflow_version, ", ".join("%d.%d" % pair for pair in new))
    )


def compute_capabilities() -> List[Tuple[int, int]]:
    """(major, minor) of each GPU, asked of the driver: TF 1.15 tells only after it has taken the GPU's memory."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    pairs = [
        (_attribute(cuda, number, _CAPABILITY_MAJOR), _attribute(cuda, number, _CAPABILITY_MINOR))
        for number in range(count.value)
    ]
    return [(major, minor) for major, minor in pairs if major is not None and minor is not None]


def _attribute(cuda, number: int, attribute: int) -> Optional[int]:
    device, value = ctypes.c_int(), ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), number):
        return None
    return None if cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) else value.value


def _is_nvidia_build(tensorflow_file: str, environ: Mapping[str, str]) -> bool:
    """NVIDIA's image sets a variable; its wheels' version ends in +nvYY.MM, which `tf.__version__` does not say."""
    site = os.path.dirname(os.path.dirname(tensorflow_file))
    return "NVIDIA_TENSORFLOW_VERSION" in environ or bool(glob.glob(os.path.join(site, "*tensorflow-*+nv*.dist-info")))
