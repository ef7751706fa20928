"""Checkpoints: saving, keeping, restoring, and taking values from other checkpoints.

A run's checkpoints are TF1 `Saver` checkpoints (V2 format) `checkpoints/model.ckpt-<step>`. They hold every global
variable: weights, optimizer slots, batch-norm averages, metrics of the epoch so far, global step. The index file is
written last, so a crash in the middle of a save leaves no new checkpoint and the older ones as they were.
"""

import os
import re
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from senet_tf1 import models
from senet_tf1.compat import tf
from senet_tf1.errors import CheckpointError, first_line
from senet_tf1.models.original_names import ORIGINALS, original_names

NEWEST_KEPT = 5
PREFIX = "model.ckpt"
# In an original checkpoint, and of no use here: tflearn's switch, the biased averages (see `layers.batch_norm`) and
# the optimizer's slots.
_IGNORED = re.compile(r"(^|/)is_training$|/biased$|/local_step$|/Momentum$")
# In a checkpoint of ours, and of the training rather than of the network.
_TRAINING = re.compile(r"/Momentum$|^metrics/|^global_step$")
_DAMAGED = (tf.errors.OpError, ValueError)


class Restored(NamedTuple):
    """What a partial restore did: names of variables."""

    restored: List[str]
    left: List[str]  # of the graph, keeping their initial values
    unused: List[str]  # of the checkpoint, with no place in the graph

    def table(self, path: str) -> str:
        """For people: how many of each, and the names of those that were not restored."""
        counts = (len(self.restored), path, len(self.left), len(self.unused))
        lines = [
            "restored %d variables from %s; %d keep their initial values; %d in the checkpoint are not used" % counts
        ]
        lines += ["  not restored: %s" % name for name in self.left]
        return "\n".join(lines + ["  not used: %s" % name for name in self.unused])


def path_of(directory: str, step: int) -> str:
    """The path prefix of the checkpoint of `step`."""
    return os.path.join(directory, "%s-%d" % (PREFIX, step))


def steps(directory: str) -> List[int]:
    """Steps of the complete checkpoints in `directory`, ascending; none if there is no such directory."""
    if not os.path.isdir(directory):
        return []
    found = [re.match(re.escape(PREFIX) + r"-(\d+)\.index$", name) for name in os.listdir(directory)]
    return sorted(int(match.group(1)) for match in found if match)


def save(saver: tf.train.Saver, session: tf.Session, directory: str, step: int) -> str:
    """Saves all of the saver's variables as the checkpoint of `step`.

    Raises:
      CheckpointError: the file system refuses (full, read-only, gone); the checkpoints before it stay.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        return saver.save(session, os.path.join(directory, PREFIX), global_step=step)
    except (tf.errors.OpError, OSError) as error:
        raise CheckpointError(
            "can't save a checkpoint in %s: %s. Make room or make it writable, then start again with the same "
            "command; the run goes on from the last checkpoint." % (directory, first_line(error))
        ) from error


def prune(directory: str, best_step: Optional[int]) -> None:
    """Deletes all checkpoints but the newest five and that of `best_step`, and what a crashed save left.

    Nothing is remembered between calls: the directory says what there is, so the rule survives restarts.
    """
    present = steps(directory)
    kept = set(present[-NEWEST_KEPT:]) | {best_step}
    for name in os.listdir(directory):
        match = re.match(re.escape(PREFIX) + r"-(\d+)\.", name)
        if (match and int(match.group(1)) not in kept) or "_temp_" in name or ".tempstate" in name:
            _remove(os.path.join(directory, name))
    paths = [path_of(directory, step) for step in present if step in kept]
    if paths:
        tf.train.update_checkpoint_state(directory, os.path.basename(paths[-1]), [os.path.basename(p) for p in paths])


def restore_newest(
    saver: tf.train.Saver, session: tf.Session, directory: str, report: Callable[[str], None]
) -> Optional[int]:
    """Restores the newest checkpoint that can be read; a damaged one is reported and the one before it tried.

    Returns:
      The restored step; None if there is no checkpoint at all.

    Raises:
      CheckpointError: there are checkpoints, and none can be read.
    """
    present = steps(directory)
    for step in reversed(present):
        path = path_of(directory, step)
        try:
            saver.restore(session, path)
            return step
        except _DAMAGED as error:
            report("WARNING: checkpoint %s can't be read and is passed over: %s" % (path, first_line(error)))
    if present:
        raise CheckpointError(
            "none of the %d checkpoints in %s can be read. Move the directory away to start anew."
            % (len(present), directory)
        )
    return None


def restore(saver: tf.train.Saver, session: tf.Session, path: str) -> None:
    """Restores one checkpoint by its path prefix. Raises CheckpointError if it is missing, damaged or another's."""
    if not os.path.exists(path + ".index"):
        raise CheckpointError("there is no checkpoint %s (looked for %s.index)" % (path, path))
    try:
        saver.restore(session, path)
    except _DAMAGED as error:
        raise CheckpointError("checkpoint %s can't be restored: %s" % (path, first_line(error))) from error


def initial_values(
    path: str, arch: str, options: Dict, shapes: Dict[str, List[int]]
) -> Tuple[Dict[str, np.ndarray], Restored]:
    """Values for the graph's variables from checkpoint `path`: one of ours (whatever fits), or an original script's.

    Args:
      path: the checkpoint's path prefix, such as `model/ResNeXt.ckpt`.
      arch: the network in the graph.
      options: its options.
      shapes: {name: shape} of the graph's variables that may be restored.

    Returns:
      {variable name: value}, and the lists to show.

    Raises:
      CheckpointError: it can't be read, does not fit, or nothing in it fits.
    """
    values = read(path)
    if "conv2d/kernel" in values:
        num_classes = shapes["head/fc/kernel"][-1]
        try:
            values = from_original(arch, values, num_classes=num_classes, **options)
        except ValueError as error:
            raise CheckpointError("%s is no original %s checkpoint: %s" % (path, arch, error)) from error
    fitting = {name: values[name] for name in values if list(values[name].shape) == shapes.get(name)}
    if not fitting:
        raise CheckpointError("nothing in checkpoint %s fits %s by name and shape" % (path, arch))
    unused = sorted(name for name in set(values) - set(fitting) if not _TRAINING.search(name))
    return fitting, Restored(sorted(fitting), sorted(set(shapes) - set(fitting)), unused)


class Assigner:
    """Sets variables to given values, by ops that are in the graph before it is finalized."""

    def __init__(self, variables: List[tf.Variable]):
        with tf.name_scope("assign"):
            self._ops = {}
            for variable in variables:
                value = tf.placeholder(variable.dtype.base_dtype, variable.shape)
                self._ops[variable.op.name] = (value, variable.assign(value, read_value=False))
        self.shapes = {variable.op.name: variable.shape.as_list() for variable in variables}

    def assign(self, session: tf.Session, values: Dict[str, np.ndarray]) -> None:
        """Assigns each value to the variable of its name; in one run, as TensorFlow optimises the graph for each."""
        used = [(self._ops[name], value) for name, value in values.items()]
        session.run([op for (_, op), _ in used], {placeholder: value for (placeholder, _), value in used})


def read(path: str) -> Dict[str, np.ndarray]:
    """Every variable of a V2 checkpoint, by name. Raises CheckpointError if it is missing or damaged."""
    if not os.path.exists(path + ".index"):
        raise CheckpointError("there is no checkpoint %s (looked for %s.index)" % (path, path))
    try:
        reader = tf.train.NewCheckpointReader(path)
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise CheckpointError("checkpoint %s can't be read: %s" % (path, first_line(error))) from error


def from_original(arch: str, original: Dict[str, np.ndarray], **options) -> Dict[str, np.ndarray]:
    """Maps the variables of an original network to ours.

    SE_ResNeXt's branches, separate variables in the original, are laid side by side along the last axis. How far the
    zero-debiasing has come (`local_step`) is taken over; 0 where the original does not say.

    Args:
      arch: "se_resnext", "se_inception_v4" or "se_inception_resnet_v2".
      original: {variable name in the original graph, without ":0": array}; optimizer slots are ignored.
      **options: the network's options and num_classes, where they are not the defaults.

    Returns:
      {our variable name: array}, for every variable of the network.

    Raises:
      ValueError: names every missing, unexpected or wrongly shaped variable.
    """
    if arch not in ORIGINALS:
        raise ValueError("there is no original of %r; there is one of %s" % (arch, ", ".join(ORIGINALS)))
    shapes = _shapes(arch, options)
    sources = original_names(arch, list(shapes), options.get("cardinality", models.options(arch).get("cardinality", 1)))
    used = {name for names in sources.values() for name in names}
    problems = ["unexpected: %s" % name for name in original if name not in used and not _IGNORED.search(name)]
    values = {}
    for name, names in sources.items():
        if name.endswith("/local_step"):
            values[name] = np.float32(max(float(np.max(original.get(source, 0.0))) for source in names))
            continue
        part = shapes[name][:-1] + [shapes[name][-1] // len(names)]
        wrong = [_problem(source, original.get(source), part) for source in names]
        problems += [problem for problem in wrong if problem]
        if not any(wrong):
            values[name] = np.concatenate([np.asarray(original[source], np.float32) for source in names], axis=-1)
    if problems:
        raise ValueError("these are not the original's variables:\n  " + "\n  ".join(sorted(problems)))
    return values


def _problem(name: str, value: Optional[np.ndarray], shape: List[int]) -> Optional[str]:
    if value is None:
        return "missing: %s, of shape %s" % (name, shape)
    if list(np.shape(value)) != shape:
        return "wrong shape: %s has %s, expected %s" % (name, list(np.shape(value)), shape)
    return None


def _shapes(arch: str, options: Dict) -> Dict[str, List[int]]:
    """{name: shape} of a network's variables, in creation order."""
    with tf.Graph().as_default():
        models.build(arch, tf.placeholder(tf.float32, [None, 32, 32, 3]), False, **options)
        return {variable.op.name: variable.shape.as_list() for variable in tf.global_variables()}


def _remove(path: str) -> None:
    try:
        if os.path.isdir(path):
            for name in os.listdir(path):
                _remove(os.path.join(path, name))
            os.rmdir(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass  # another process was faster; gone is what was wanted
