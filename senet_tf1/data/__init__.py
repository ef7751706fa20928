"""Data sets: uint8 images and int labels, nothing more, whichever it is."""

from typing import Callable, NamedTuple, Tuple

import numpy as np

from senet_tf1.errors import ConfigError, DataError

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NAMES = ("cifar10", "sample", "synthetic", "auto")
Report = Callable[[str], None]


class Split(NamedTuple):
    """Images of one purpose: training or test."""

    images: np.ndarray  # uint8 [n, height, width, 3]
    labels: np.ndarray  # int32 [n]


class Dataset(NamedTuple):
    """A data set, and where it came from."""

    name: str  # what it is, never "auto"
    source: str  # for people
    class_names: Tuple[str, ...]
    train: Split
    test: Split


def load(name: str, data_dir: str, report: Report = print) -> Dataset:
    """Loads a data set, fetching CIFAR-10 if it is not there.

    Args:
      name: one of `NAMES`; "auto" is CIFAR-10 if it is there or can be fetched, else the embedded sample.
      data_dir: where CIFAR-10 lies or will be put.
      report: takes lines for people.

    Raises:
      DataError: it is not to be had, or is damaged; says which file and what to do.
      ConfigError: there is no data set of that name.
    """
    # Here and not above: the readers use the types of this module.
    from senet_tf1.data import cifar, download, sample, synthetic

    if name == "sample":
        return sample.load()
    if name == "synthetic":
        return synthetic.load()
    if name not in ("cifar10", "auto"):
        raise ConfigError("there is no data set %r; there are %s" % (name, ", ".join(NAMES)))
    try:
        directory = download.ensure_cifar10(data_dir, report)
    except download.NotFetchedError as error:
        if name == "cifar10":
            raise
        report("WARNING: CIFAR-10 is not in %s and can't be fetched: %s" % (data_dir, error))
        report("WARNING: training on the embedded SAMPLE of 1,000 images instead; its results are not CIFAR-10 results")
        return sample.load()
    dataset = cifar.load(directory)
    report("data: CIFAR-10, %s" % dataset.source)
    return dataset


def subset(split: Split, examples: int, classes: int) -> Split:
    """The first examples of each class, in the split's order: as many of each as `examples` allow.

    Raises:
      DataError: there are not that many; the numbers of classes can differ by one where it does not divide.
    """
    quotas = [examples // classes + (label < examples % classes) for label in range(classes)]
    chosen = [np.flatnonzero(split.labels == label)[:quota] for label, quota in enumerate(quotas)]
    short = [label for label, quota in enumerate(quotas) if len(chosen[label]) < quota]
    if short:
        count = int(np.sum(split.labels == short[0]))
        raise DataError("--train_examples=%d: class %d has only %d of them" % (examples, short[0], count))
    indices = np.sort(np.concatenate(chosen))
    return Split(split.images[indices], split.labels[indices])
