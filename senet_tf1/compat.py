"""The only module that imports TensorFlow: `tf` is `tf.compat.v1` on TF 1.15 and on every TF 2.x."""

import functools
from typing import List

import tensorflow as _tensorflow

tf = _tensorflow.compat.v1


def use_graph_mode() -> None:
    """Switches TF 2 behaviour off (eager execution, control flow v2, v2 tensor shapes); harmless on TF 1.15.

    Called by entry points and by the tests' conftest, never on import: a program that uses this package as a
    library decides for itself. Must run before the first graph is built.
    """
    tf.disable_v2_behavior()


def has_grouped_conv2d(dtype: "tf.DType", device: str) -> bool:
    """Whether `tf.nn.conv2d` and its gradients take grouped kernels on `device`; "" is wherever TensorFlow places ops.

    On the CPU TF 1.15 has no grouped kernel at all, and TF 2.21 has gradients only with oneDNN (see `environment`) and
    not for every type: a probe runs a small one.
    """
    kind = tf.DeviceSpec.from_string(device).device_type or ("GPU" if gpus() else "CPU")
    return _probe_grouped_conv2d(tf.as_dtype(dtype).base_dtype.name, kind)


@functools.lru_cache(maxsize=None)
def _probe_grouped_conv2d(dtype: str, device: str) -> bool:
    with tf.Graph().as_default(), tf.device("/%s:0" % device):
        x, kernel = tf.ones([1, 4, 4, 4], dtype), tf.ones([3, 3, 2, 4], dtype)
        y = tf.nn.conv2d(x, kernel, strides=[1, 1, 1, 1], padding="SAME")
        config = tf.ConfigProto(allow_soft_placement=False)
        config.gpu_options.allow_growth = True
        # The gradients only where the forward op works: TF 1.15's CPU gradient kernels take a grouped kernel for an
        # ordinary one and write past their buffers.
        with tf.Session(config=config) as session:
            try:
                session.run(y)
                session.run(tf.gradients(y, [x, kernel]))
            except tf.errors.OpError:
                return False
    return True


def gpus() -> List[str]:
    """Names of the GPUs that TensorFlow sees; no GPU memory is taken."""
    return [device.name for device in tf.config.experimental.list_physical_devices("GPU")]


def tensorflow_version() -> str:
    """TensorFlow's version, such as "1.15.5"."""
    return str(_tensorflow.__version__)


def tensorflow_file() -> str:
    """The path of TensorFlow's `__init__.py`."""
    return str(_tensorflow.__file__)
