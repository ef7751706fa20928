"""Trains, evaluates and uses SE networks on CIFAR-10: `python run_cifar10.py --help`."""

import sys

from senet_tf1.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
