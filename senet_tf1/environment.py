"""Environment variables that TensorFlow reads when it is imported. Nothing the user has set is changed."""

from typing import MutableMapping


def prepare(environ: MutableMapping[str, str]) -> None:
    """Must run before `senet_tf1.compat` is imported.

    oneDNN's kernels are on by default only on processors with AVX512 or better; on the others they make this package's
    networks 1.7 times as fast (docs/performance.md). TensorFlow's own start-up messages are reduced to errors.
    """
    environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
