"""SE networks on CIFAR-10 in TensorFlow graph mode (`tf.compat.v1`), on TF 1.15 and on TF 2.x.

Importing the package changes nothing: no flag is defined, no TensorFlow behaviour is switched, no file is
touched. The entry point `run_cifar10.py` does that (see `senet_tf1.compat.use_graph_mode`).
"""

__version__ = "0.1.0"
