"""A run's directory: config.json, and who may write into it."""

import json
import os
import sys
from typing import Any, Callable, Dict, Sequence

import numpy as np

from senet_tf1 import __version__, checkpoint, config, data, devices, logs
from senet_tf1.compat import tensorflow_version
from senet_tf1.data.pipeline import Standardisation
from senet_tf1.errors import CheckpointError, ConfigError

CONFIG, CHECKPOINTS = "config.json", "checkpoints"


def check(settings: config.Config, report: Callable[[str], None]) -> None:
    """Refuses what would harm the run that is in the directory already; writes nothing.

    Raises:
      ConfigError: the network is another than the run's, or the run must not be resumed and there is one.
      CheckpointError: there is nothing to resume and there must be.
    """
    directory = settings.model_dir
    if os.path.exists(directory) and not os.path.isdir(directory):
        raise ConfigError("--model_dir=%s is a file: expected a directory" % directory)
    present = checkpoint.steps(os.path.join(directory, CHECKPOINTS))
    if settings.resume == "must" and not present:
        raise CheckpointError("--resume=must: there is no checkpoint in %s/%s" % (directory, CHECKPOINTS))
    if settings.resume == "never" and present:
        raise ConfigError(
            "--resume=never: %s holds a run of %d steps; choose another --model_dir" % (directory, present[-1])
        )
    if present and os.path.exists(os.path.join(directory, CONFIG)):
        recorded = read(directory)
        differences = config.network_differences(settings, recorded)
        if differences:
            advice = "Go on with the run's own settings, or choose another --model_dir."
            raise ConfigError(
                "%s holds a run of another network:\n  %s\n%s" % (directory, "\n  ".join(differences), advice)
            )
        for difference in config.other_differences(settings, recorded):
            report("NOTE: %s" % difference)


def check_data(settings: config.Config, dataset: data.Dataset) -> None:
    """Raises ConfigError if the run in the directory is on other data, as `--dataset=auto` may find later."""
    directory = settings.model_dir
    present = checkpoint.steps(os.path.join(directory, CHECKPOINTS))
    if present and os.path.exists(os.path.join(directory, CONFIG)):
        name = read(directory)["data"].get("name")
        if name != dataset.name:
            raise ConfigError(
                "%s holds a run on the data set %s, and --dataset=%s is now %s: give --dataset=%s, or choose another "
                "--model_dir" % (directory, name, settings.dataset, dataset.name, name)
            )


def write(settings: config.Config, dataset: data.Dataset, scale: Standardisation) -> None:
    """Creates the directory and its config.json: every setting, versions, devices, and what the data were."""
    value = dict(settings._asdict())
    value["versions"] = {
        "python": sys.version.split()[0],
        "tensorflow": tensorflow_version(),
        "numpy": np.__version__,
        "senet_tf1": __version__,
    }
    value["devices"] = devices.names()
    value["data"] = {
        "name": dataset.name,
        "source": dataset.source,
        "class_names": list(dataset.class_names),
        "image_shape": list(dataset.train.images.shape[1:]),
        "train_examples": len(dataset.train.labels),
        "test_examples": len(dataset.test.labels),
        "mean": list(scale.mean),
        "deviation": list(scale.deviation),
    }
    try:
        os.makedirs(settings.model_dir, exist_ok=True)
        logs.write_json(os.path.join(settings.model_dir, CONFIG), value)
    except OSError as error:
        raise ConfigError("can't write into --model_dir=%s: %s" % (settings.model_dir, error)) from error


def read(directory: str) -> Dict[str, Any]:
    """The content of config.json. Raises CheckpointError where there is no run or the file is damaged."""
    path = os.path.join(directory, CONFIG)
    try:
        with open(path, encoding="utf-8") as handle:
            value = json.load(handle)
        if not isinstance(value, dict) or not isinstance(value.get("data"), dict):
            raise ValueError("it is not a run's configuration")
        return value
    except FileNotFoundError:
        raise CheckpointError(
            "there is no run in %s (looked for %s): train one first, or give its --model_dir" % (directory, path)
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError("%s can't be read: %s" % (path, error)) from error


def settings_of_run(given: Dict[str, Any]) -> config.Config:
    """The settings to evaluate or predict with: the run's own network and data, and what the user gave besides.

    Raises:
      ConfigError: the user asked for another network than the run's.
      CheckpointError: there is no run.
    """
    # The network's own options can only be judged once its run says which network it is.
    directory = config.resolve({name: given[name] for name in given if name not in config.OPTIONS}).model_dir
    recorded = read(directory)
    names = [field.name for field in config.FIELDS if field.network] + ["dropout_rate", "data_dir"]
    values = {name: recorded[name] for name in names if recorded.get(name) is not None}
    values.update(model_dir=directory, dataset=recorded["data"].get("name"))
    values.update({name: value for name, value in given.items() if value is not None})
    settings = config.resolve(values)
    differences = config.network_differences(settings, recorded)
    if differences:
        raise ConfigError("%s holds a run of another network:\n  %s" % (directory, "\n  ".join(differences)))
    return settings


def check_classes(dataset: data.Dataset, class_names: Sequence[str]) -> None:
    """Raises ConfigError if a data set has other classes than those that a network was trained on."""
    if tuple(dataset.class_names) != tuple(class_names):
        ours, theirs = ", ".join(class_names), ", ".join(dataset.class_names)
        raise ConfigError(
            "--dataset=%s has the classes %s; the network was trained on %s" % (dataset.name, theirs, ours)
        )


def checkpoint_path(settings: config.Config) -> str:
    """The checkpoint that --checkpoint names: the latest, the best by test accuracy, or a path.

    Raises:
      CheckpointError: there is none.
    """
    directory = os.path.join(settings.model_dir, CHECKPOINTS)
    present = checkpoint.steps(directory)
    if settings.checkpoint not in ("latest", "best"):
        return settings.checkpoint
    if not present:
        raise CheckpointError("there is no checkpoint in %s" % directory)
    step = present[-1] if settings.checkpoint == "latest" else logs.best_step(settings.model_dir)
    if step is None:
        raise CheckpointError("--checkpoint=best: %s has no evaluation yet" % settings.model_dir)
    return checkpoint.path_of(directory, step)
