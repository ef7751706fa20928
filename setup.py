"""Package metadata. The version number lives in senet_tf1/__init__.py and nowhere else."""

import os
import re

from setuptools import find_packages, setup

HERE = os.path.dirname(os.path.abspath(__file__))


def _read(*path):
    with open(os.path.join(HERE, *path), encoding="utf-8") as handle:
        return handle.read()


setup(
    name="senet_tf1",
    version=re.search(r'^__version__ = "(.+)"$', _read("senet_tf1", "__init__.py"), re.MULTILINE).group(1),
    description="SE networks on CIFAR-10 in TensorFlow graph mode, on TF 1.15 and on TF 2.x",
    long_description=_read("README.md"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["senet_tf1", "senet_tf1.*"]),
    package_data={"senet_tf1.data": ["sample/*"]},
    python_requires=">=3.6",
    install_requires=["tensorflow>=1.15", "numpy", "absl-py"],
    extras_require={
        "progress": ["tqdm"],
        "tensorboard": ["tensorboard"],
        "test": ["pytest"],
        "dev": ["pytest", "ruff==0.17.6"],
    },
)
