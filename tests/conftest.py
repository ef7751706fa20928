"""Shared by every test: graph mode, a quiet TensorFlow set up as the program does, a fresh default graph each time."""

import os

from senet_tf1 import environment

environment.prepare(os.environ)
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import pytest  # noqa: E402

from senet_tf1.compat import tf, use_graph_mode  # noqa: E402

use_graph_mode()
tf.logging.set_verbosity(tf.logging.ERROR)


@pytest.fixture(autouse=True)
def _fresh_graph():
    with tf.Graph().as_default():
        yield
