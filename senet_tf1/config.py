"""The frozen configuration of a run: one table of fields, from which the flags are made, validated once.

`resolve` fills what the user left open (each architecture and recipe has its defaults), checks everything and reports
every mistake at once. Nothing below it reads a flag or invents a default.
"""

import math
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from senet_tf1.errors import ConfigError


class Field(NamedTuple):
    """One setting: its name is the flag's name and the Config's attribute."""

    name: str
    type: type
    default: Any  # None: left open, `resolve` decides
    help: str
    choices: Tuple[str, ...] = ()
    minimum: Optional[float] = None
    maximum: Optional[float] = None  # bounds are inclusive
    network: bool = False  # changes the network's variables or what they compute: fixed for the life of a run


_MODES = ("train", "evaluate", "predict", "info")
_ARCHS = ("se_resnext", "se_inception_v4", "se_inception_resnet_v2")
_CLIP_MODES = ("global_norm", "norm", "value", "none")

FIELDS = (
    Field("mode", str, "train", "train (evaluating after every epoch), evaluate, predict or info.", _MODES),
    Field("arch", str, "se_resnext", "The network.", _ARCHS, network=True),
    Field(
        "recipe",
        str,
        "default",
        "default: settings under which each network learns; original: the original scripts', under which "
        "the inception networks do not (docs/training.md).",
        ("default", "original"),
    ),
    Field("cardinality", int, None, "SE_ResNeXt: branches of a block. Default 8.", minimum=1, network=True),
    Field("depth", int, None, "SE_ResNeXt: filters of a branch. Default 64.", minimum=1, network=True),
    Field("blocks", int, None, "SE_ResNeXt: blocks of each of the three stages. Default 3.", minimum=1, network=True),
    Field(
        "reduction_ratio",
        int,
        None,
        "Channels over hidden units of the squeeze-and-excitation. Default 4.",
        minimum=1,
        network=True,
    ),
    Field(
        "se_position",
        str,
        None,
        "SE_Inception_resnet_v2: squeeze-and-excitation on the block's output (block, the original's and the default) "
        "or on the residual branch (residual, the paper's).",
        ("block", "residual"),
        network=True,
    ),
    Field(
        "dropout_rate",
        float,
        None,
        "Share of features dropped before the last layer. Default 0.2 in the inception networks, 0 in SE_ResNeXt.",
        minimum=0.0,
        maximum=0.999,
    ),
    Field(
        "conv_bias",
        float,
        None,
        "Inception networks: initial value of the convolutions' biases. Default 1; 0 is the original's.",
        minimum=-100.0,
        maximum=100.0,
    ),
    Field(
        "dataset",
        str,
        "cifar10",
        "cifar10; sample (1,000 + 500 images that come with the package); synthetic; auto (cifar10 if it is there or "
        "can be fetched, else the sample).",
        ("cifar10", "sample", "synthetic", "auto"),
    ),
    Field("data_dir", str, "data", "Directory of the data sets; they are put there if missing."),
    Field(
        "train_examples",
        int,
        None,
        "Train on the first N examples only, as many of each class. Default: all.",
        minimum=10,
    ),
    Field("augment", bool, True, "Train on random flips and crops (zero-padded by 4 pixels)."),
    Field(
        "model_dir", str, None, "Directory of the run: configuration, metrics, logs, checkpoints. Default runs/<arch>."
    ),
    Field("batch_size", int, 128, "Examples a step, over all replicas.", minimum=1),
    Field("eval_batch_size", int, 250, "Examples a step of an evaluation; does not change its result.", minimum=1),
    Field("train_epochs", int, 100, "Passes over the training set.", minimum=1),
    Field("train_steps", int, None, "Steps (updates) to train for; wins over --train_epochs.", minimum=1),
    Field("num_gpus", int, 1, "Replicas on this machine: GPUs, or where there is none CPU devices.", minimum=1),
    Field(
        "strategy",
        str,
        "towers",
        "How replicas run: towers (on one set of variables, and over workers); mirrored and multi_worker_mirrored "
        "(tf.distribute's, a copy of the variables each).",
        ("towers", "mirrored", "multi_worker_mirrored"),
    ),
    Field(
        "all_reduce",
        str,
        "auto",
        "mirrored: how gradients are added up: nccl (GPUs), hierarchical, one_device, or auto, TensorFlow's choice.",
        ("auto", "nccl", "hierarchical", "one_device"),
    ),
    Field("device", str, "auto", "gpu, cpu, or auto: GPUs if there are any.", ("auto", "gpu", "cpu")),
    Field(
        "variable_device",
        str,
        "auto",
        "towers: where variables live and gradients are averaged: cpu, gpu0 (the first GPU), or auto: the first GPU if "
        "there is one.",
        ("auto", "cpu", "gpu0"),
    ),
    Field(
        "bn_update",
        str,
        "mean",
        "Whose statistics move the batch-norm averages: mean (those of the whole batch, joined from all replicas and "
        "micro-batches) or first (those of the first).",
        ("mean", "first"),
    ),
    Field("sync_batch_norm", bool, False, "Normalise by the statistics of all replicas together."),
    Field("freeze_batch_norm", bool, False, "Train with batch norm in inference mode: its averages stay as they are."),
    Field(
        "accumulation_steps",
        int,
        1,
        "Micro-batches of --batch_size for one update: the same as a batch so many times as large.",
        minimum=1,
    ),
    Field(
        "worker_hosts",
        str,
        None,
        "Addresses of all workers, the chief's first: host1:port,host2:port. TF_CONFIG says the same.",
    ),
    Field("task_index", int, None, "Which of --worker_hosts this one is.", minimum=0),
    Field("startup_timeout", float, 120.0, "Seconds to wait for the other workers at the start.", minimum=1.0),
    Field(
        "worker_timeout",
        float,
        30.0,
        "Seconds without an answer after which a worker is lost and all others end.",
        minimum=2.0,
        maximum=55.0,
    ),
    Field(
        "recompute",
        bool,
        False,
        "Compute the activations of each block again in the backward pass instead of keeping them: less memory, a "
        "third more work.",
    ),
    Field("optimizer", str, "momentum", "momentum (Nesterov's), the original's.", ("momentum",)),
    Field(
        "learning_rate",
        float,
        None,
        "Base learning rate. Default 0.1 for SE_ResNeXt, 0.005 for the inception networks.",
        minimum=1e-12,
        maximum=1e3,
    ),
    Field(
        "scale_learning_rate",
        str,
        "none",
        "linear: the base learning rate is for 128 examples an update and is scaled to what an update has "
        "(--batch_size times --accumulation_steps), as Goyal et al. 2017 do; none: it is taken as it is.",
        ("none", "linear"),
    ),
    Field(
        "lr_schedule",
        str,
        "step",
        "step: a tenth from epochs 30, 60 and 90 on (counted from 1); cosine: to 0 at the end; constant.",
        ("step", "cosine", "constant"),
    ),
    Field(
        "warmup_epochs",
        float,
        0.0,
        "Epochs of linear warm-up of the learning rate.",
        minimum=0.0,
    ),
    Field("momentum", float, 0.9, "Of the momentum optimizer.", minimum=0.0, maximum=0.9999),
    Field(
        "weight_decay",
        float,
        5e-4,
        "Factor of the L2 loss (half the sum of squares) of all trainable variables.",
        minimum=0.0,
    ),
    Field(
        "clip_mode",
        str,
        "global_norm",
        "Gradient clipping: global_norm (of all gradients together); norm (of each variable's); value (of each "
        "entry); none, the original's.",
        _CLIP_MODES,
    ),
    Field("clip_value", float, 10.0, "Largest norm or value that clipping leaves.", minimum=1e-12),
    Field("seed", int, 0, "Everything random follows from it.", minimum=0, maximum=2**31 - 1),
    Field(
        "resume",
        str,
        "auto",
        "auto: go on from the newest usable checkpoint, if any; must: fail if there is none; never: fail if there "
        "is one.",
        ("auto", "must", "never"),
    ),
    Field(
        "init_from",
        str,
        None,
        "Checkpoint to take initial values from: ours (whatever fits by name and shape) or the original scripts'. "
        "Says what was and was not restored.",
    ),
    Field(
        "checkpoint", str, "latest", "For evaluate and predict: latest, best (by test accuracy) or a checkpoint's path."
    ),
    Field("checkpoint_minutes", float, 10.0, "Minutes between checkpoints within an epoch.", minimum=0.01),
    Field("epochs_between_evals", int, 1, "Evaluate after every Nth epoch, and at the end.", minimum=1),
    Field("log_every", int, 10, "Steps between two lines of metrics.", minimum=1),
    Field("json", bool, False, "predict: print JSON instead of a table."),
)
# Those that are options of some networks only.
OPTIONS = ("cardinality", "depth", "blocks", "reduction_ratio", "se_position", "dropout_rate", "conv_bias")
_REFERENCE_BATCH = 128  # the original's, for which the learning rates are
_BY_NAME = {field.name: field for field in FIELDS}

# What the original scripts do, and what is done where they do not learn (found by experiment: docs/training.md).
_ORIGINAL = {"learning_rate": 0.1, "clip_mode": "none"}
_RESNEXT = {"learning_rate": 0.1}
_INCEPTION = {"learning_rate": 0.005, "conv_bias": 1.0}
_DEFAULTS = {
    "se_resnext": _RESNEXT,
    "se_inception_v4": _INCEPTION,
    "se_inception_resnet_v2": _INCEPTION,
}  # type: Dict[str, Dict[str, Any]]


class Config(NamedTuple("Config", [(field.name, Any) for field in FIELDS])):  # type: ignore[misc]
    """A resolved configuration. Only here are quantities derived from others."""

    __slots__ = ()

    def model_options(self) -> Dict[str, Any]:
        """Keyword arguments for `models.build`: those of the network's options that are set."""
        return {name: getattr(self, name) for name in _network_options(self.arch) if getattr(self, name) is not None}

    def update_examples(self) -> int:
        """Examples of an update, over all replicas and micro-batches."""
        return self.batch_size * self.accumulation_steps

    def base_learning_rate(self) -> float:
        """The learning rate that the schedule starts from."""
        scale = self.update_examples() / _REFERENCE_BATCH if self.scale_learning_rate == "linear" else 1.0
        return self.learning_rate * scale

    def steps_per_epoch(self, examples: int) -> int:
        """Updates that see each of `examples` once; the last one may have fewer, as in the original."""
        return int(math.ceil(examples / self.update_examples()))

    def total_steps(self, examples: int) -> int:
        """Updates of the whole run."""
        return self.train_steps or self.train_epochs * self.steps_per_epoch(examples)


def resolve(given: Dict[str, Any]) -> Config:
    """Makes a Config of the settings the user gave, by name.

    Args:
      given: only what was set on purpose; a missing name or None takes the default of recipe, architecture or field.

    Raises:
      ConfigError: names every mistake with the accepted values.
    """
    unknown = sorted(set(given) - set(_BY_NAME))
    if unknown:
        raise ConfigError("unknown settings: %s" % ", ".join(unknown))
    given = {name: value for name, value in given.items() if value is not None}
    problems = [problem for field in FIELDS if field.name in given for problem in _check(field, given[field.name])]
    if problems:
        raise ConfigError("\n".join(problems))
    values = {field.name: field.default for field in FIELDS}
    values.update(given)
    values.update({name: value for name, value in _defaults(values).items() if name not in given})
    problems = _combinations(values, given)
    if problems:
        raise ConfigError("\n".join(problems))
    return Config(**values)


def network_differences(ours: Config, recorded: Dict[str, Any]) -> List[str]:
    """Sentences on every field that makes another network than the one recorded; empty if it is the same."""
    return _differences(ours, recorded, network=True)


def other_differences(ours: Config, recorded: Dict[str, Any]) -> List[str]:
    """Sentences on every other field that changes what a resumed run computes."""
    return _differences(ours, recorded, network=False)


def _differences(ours: Config, recorded: Dict[str, Any], network: bool) -> List[str]:
    bookkeeping = ("mode", "recipe", "data_dir", "model_dir", "eval_batch_size", "device", "resume", "init_from")
    bookkeeping += (
        "worker_hosts",
        "task_index",
        "startup_timeout",
        "worker_timeout",
        "num_gpus",
        "variable_device",
        "strategy",
        "all_reduce",
    )
    bookkeeping += ("checkpoint", "checkpoint_minutes", "json", "train_epochs", "train_steps")
    return [
        "--%s was %s in this run and is now %s" % (field.name, recorded[field.name], getattr(ours, field.name))
        for field in FIELDS
        if field.network == network
        and field.name not in bookkeeping
        and field.name in recorded
        and recorded[field.name] != getattr(ours, field.name)
    ]


def _check(field: Field, value: Any) -> List[str]:
    """What is wrong with one value."""
    number = field.type in (int, float)
    kind = (int, float) if field.type is float else field.type
    if not isinstance(value, kind) or (number and isinstance(value, bool)):
        return ["--%s=%r: expected %s" % (field.name, value, field.type.__name__)]
    if field.choices and value not in field.choices:
        return ["--%s=%s: expected one of %s" % (field.name, value, ", ".join(field.choices))]
    if number and not math.isfinite(value):
        return ["--%s=%s: expected a finite number" % (field.name, value)]
    if field.minimum is not None and value < field.minimum:
        return ["--%s=%s: expected at least %s" % (field.name, value, field.minimum)]
    if field.maximum is not None and value > field.maximum:
        return ["--%s=%s: expected at most %s" % (field.name, value, field.maximum)]
    if field.type is str and not value:
        return ["--%s is empty" % field.name]
    return []


def _defaults(values: Dict[str, Any]) -> Dict[str, Any]:
    """Recipe's and network's defaults for what is still open."""
    arch = values["arch"]
    defaults = dict(_network_options(arch))
    defaults.update(_ORIGINAL if values["recipe"] == "original" else _DEFAULTS[arch])
    defaults["model_dir"] = os.path.join("runs", arch)
    return defaults


def _combinations(values: Dict[str, Any], given: Dict[str, Any]) -> List[str]:
    """Settings that are fine alone and make no sense together."""
    problems = []
    for name in OPTIONS:
        takers = [arch for arch in _ARCHS if name in _network_options(arch)]
        if name in given and values["arch"] not in takers:
            problems.append("--%s: %s has no such option; %s have" % (name, values["arch"], ", ".join(takers)))
    if "clip_value" in given and values["clip_mode"] == "none":
        problems.append("--clip_value=%s: needs a --clip_mode other than none" % values["clip_value"])
    if values["sync_batch_norm"] and values["freeze_batch_norm"]:
        problems.append(
            "--sync_batch_norm and --freeze_batch_norm: a batch norm uses the batch or its averages, not both"
        )
    problems += [
        "--%s: only --strategy=%s has it" % (name, strategy)
        for name, strategy in (("all_reduce", "mirrored"), ("variable_device", "towers"))
        if values[name] != "auto" and values["strategy"] != strategy
    ]
    if (values["worker_hosts"] is None) != (values["task_index"] is None):
        problems.append("--worker_hosts and --task_index go together")
    if values["json"] and values["mode"] != "predict":
        problems.append("--json: only --mode=predict prints JSON")
    return problems


def _network_options(arch: str) -> Dict[str, Any]:
    """The network's options and defaults; imported late, so that a usage error does not wait for TensorFlow."""
    from senet_tf1 import models

    return models.options(arch)
