"""The training run: data, graph, restore, then steps with logging, checkpoints and evaluation.

Whatever a step computes follows from the checkpoint before it, the seed and the data; what has to survive a crash is
in the checkpoint or is worked out again from the files. So a run killed at any moment and resumed goes on as if
nothing had happened.
"""

import math
import os
import signal
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from senet_tf1 import (
    checkpoint,
    cluster,
    compat,
    data,
    devices,
    evaluate,
    graph,
    layers,
    logs,
    run_dir,
    schedules,
    strategies,
    towers,
)
from senet_tf1.compat import tf
from senet_tf1.config import Config
from senet_tf1.data import pipeline
from senet_tf1.errors import ConfigError, NumericsError

Report = Callable[[str], None]
Replication = Union[towers.Towers, strategies.Mirrored]


class Outcome(NamedTuple):
    """How a training run ended."""

    step: int  # updates made
    stopped: bool  # before its end, by a signal
    test: Optional[Dict[str, Any]]  # the last evaluation's line of metrics.jsonl
    wrote: bool  # False for a worker that is not the chief


class StopRequest:
    """True once SIGTERM or Ctrl-C came; the loop asks after every step. A second Ctrl-C interrupts at once."""

    def __init__(self):
        self._requested, self._old = False, {}

    def __enter__(self) -> "StopRequest":
        self._old = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *unused) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        return self._requested

    def _on_signal(self, number, unused_frame) -> None:
        if self._requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._requested = True


def train(config: Config, report: Report = print) -> Outcome:
    """Trains a network as configured, from the newest usable checkpoint if there is one.

    Args:
      config: the run's configuration.
      report: takes lines for people.

    Raises:
      SenetError: says what was wrong and what to do; nothing was written if it is about the configuration.
    """
    place = cluster.find(config, os.environ)
    if place is None or place.index == 0:
        run_dir.check(config, report)
    chosen = devices.choose(config.device, config.num_gpus, report)
    _check_strategy(config, chosen, place)
    session_config = devices.session_config(chosen)
    if place is None:
        return _train(config, _replication(config, chosen, None), "", session_config, report)
    if config.strategy == "multi_worker_mirrored":
        os.environ["TF_CONFIG"] = place.tf_config()  # where the strategy looks; --worker_hosts may have said it
    replication = _replication(config, chosen, place)
    workers = cluster.Workers(place, config, replication.update_session_config(session_config), report)
    try:
        outcome = _train(config, replication, workers.target, workers.session_config, report)
    except NumericsError:
        workers.leave()  # all workers see the same numbers and end alike
        raise
    except tf.errors.OpError as error:
        raise workers.explain(error) from error
    workers.leave()
    return outcome


def _check_strategy(config: Config, chosen: List[str], place: Optional[cluster.Cluster]) -> None:
    """Refuses combinations that can't work, before anything is written."""
    if config.strategy == "mirrored" and place is not None:
        raise ConfigError(
            "--strategy=mirrored is for one machine, and TF_CONFIG or --worker_hosts names %d workers: take "
            "multi_worker_mirrored or towers" % len(place.hosts)
        )
    if config.recompute and config.strategy != "towers" and compat.tensorflow_version() < "2":
        raise ConfigError(
            "--recompute with --strategy=%s: TensorFlow 1.15's custom gradients do not know a strategy's variables; "
            "take --strategy=towers" % config.strategy
        )
    if config.strategy != "multi_worker_mirrored":
        return
    if place is None:
        raise ConfigError(
            "--strategy=multi_worker_mirrored needs at least two workers in TF_CONFIG or --worker_hosts; on one "
            "machine take mirrored"
        )
    available = len(compat.gpus()) if chosen[0].startswith("/gpu") else 1
    if len(chosen) != available:
        raise ConfigError(
            "--num_gpus=%d: MultiWorkerMirroredStrategy takes all GPUs of a worker, or one CPU device, and there %s %d:"
            " hide others by CUDA_VISIBLE_DEVICES, or take --strategy=towers"
            % (len(chosen), "is" if available == 1 else "are", available)
        )


def _replication(config: Config, chosen: List[str], place: Optional[cluster.Cluster]) -> Replication:
    """How replicas run, as configured."""
    if place is None:
        if config.strategy == "mirrored":
            return strategies.mirrored(chosen, config.all_reduce)
        return towers.Towers(chosen, devices.for_variables(config.variable_device, chosen))
    own = [place.device() + device for device in chosen]
    if config.strategy == "multi_worker_mirrored":
        return strategies.multi_worker(own, len(place.hosts), place.index)
    variable_device = place.device() + devices.for_variables(config.variable_device, chosen)
    return towers.Towers(own, variable_device, len(place.hosts), place.index)


def _train(
    config: Config, replication: Replication, target: str, session_config: tf.ConfigProto, report: Report
) -> Outcome:
    """Trains in a session of `target`, "" for one in this process."""
    dataset = data.load(config.dataset, config.data_dir, report)
    if replication.worker == 0:
        run_dir.check_data(config, dataset)
    if config.train_examples:
        dataset = dataset._replace(train=data.subset(dataset.train, config.train_examples, len(dataset.class_names)))
    _announce(config, replication, report)
    with tf.Graph().as_default(), tf.device(replication.devices[0]):
        tf.set_random_seed(config.seed)
        trainer = Trainer(config, dataset, replication, report)
        with tf.Session(target, config=session_config) as session, StopRequest() as stop:
            trainer.start(session)
            return trainer.loop(session, stop)


def _announce(config: Config, replication: Replication, report: Report) -> None:
    """Who computes how much of an update."""
    replicas = replication.workers * len(replication.devices)
    if replicas * config.accumulation_steps > 1:
        sizes = [config.batch_size // replicas + (index < config.batch_size % replicas) for index in range(replicas)]
        report(
            "an update is %d examples: %d micro-batches of %d, %s to the %d replicas (workers: %d, devices of this "
            "one: %s)"
            % (
                config.update_examples(),
                config.accumulation_steps,
                config.batch_size,
                " + ".join(str(size) for size in sizes),
                replicas,
                replication.workers,
                ", ".join(replication.devices),
            )
        )
    rate = config.base_learning_rate()
    report("base learning rate %g (--scale_learning_rate=%s)" % (rate, config.scale_learning_rate))


class Trainer:
    """The graph of a training run, and the state of its loop."""

    def __init__(self, config: Config, dataset: data.Dataset, replication: Replication, report: Report):
        """Builds the graph in the current default graph."""
        self.config, self.dataset, self.replication, self.report = config, dataset, replication, report
        self.examples = len(dataset.train.labels)
        self.steps_per_epoch = config.steps_per_epoch(self.examples)
        self.total_steps = config.total_steps(self.examples)
        self.checkpoints = os.path.join(config.model_dir, run_dir.CHECKPOINTS)
        self.scale = pipeline.standardisation(dataset.train.images)
        shape = dataset.train.images.shape[1:]
        share = pipeline.Share(
            config.accumulation_steps, replication.workers, replication.worker, len(replication.devices)
        )
        self.batches = pipeline.training_batches(
            shape, self.examples, config.update_examples(), config.seed, config.augment, self.scale, share
        )
        batch = graph.Batch(self.batches.images, self.batches.labels, self.batches.total, self.batches.part)
        self.graph = graph.training(config, batch, len(dataset.class_names), replication)
        # A checkpoint holds one copy of each variable, under its own name, whatever runs the replicas.
        first = {variable.op.name: replication.copies(variable)[0] for variable in tf.global_variables()}
        self.saver = tf.train.Saver(first, max_to_keep=None, save_relative_paths=True)
        network = tf.trainable_variables() + [v for m in tf.get_collection(layers.MOMENTS) for v in m[:3]]
        network = [first[name] for name in sorted({variable.op.name for variable in network})]
        self.initializer = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
        self.assigner = checkpoint.Assigner(network)
        self.is_chief = replication.worker == 0
        self.broadcast = replication.broadcast(tf.global_variables())
        self.agreed = replication.agree(self.graph.stop)
        self.stopping = False
        self.step = 0
        self.test = None  # type: Optional[Dict[str, Any]]
        for name in self.graph.without_gradient:
            report("NOTE: the loss does not depend on %s: it stays as it is" % name)
        self.last = {}  # type: Dict[str, float]
        self.window_seconds, self.window_images = 0.0, 0

    def start(self, session: tf.Session) -> None:
        """Sets the variables, opens the files, starts the input. What it refuses, it refuses before writing."""
        tf.get_default_graph().finalize()
        session.run(self.initializer)
        if self.is_chief:
            self._restore(session)
        session.run(self.broadcast)
        self.step = int(session.run(self.graph.global_step))
        if self.step:
            self.report("resumed from step %d of %d" % (self.step, self.total_steps))
        if self.is_chief:
            run_dir.write(self.config, self.dataset, self.scale)
            self.log = logs.RunLog(self.config.model_dir, self.step, self.step // self.steps_per_epoch)
            self.progress = logs.Progress(self.step, self.total_steps, self.config.log_every)
        self._start_batches(session)

    def loop(self, session: tf.Session, stop: StopRequest) -> Outcome:
        """Steps until the end or a stop; the checkpoint of the last step is there when it returns."""
        saved_at = time.monotonic()
        self._end_of_epoch(session, stop)
        while self.step < self.total_steps and not self.stopping:
            self._train_step(session, stop)
            if self.step % self.config.log_every == 0 or self._at_boundary():
                self._log(session)
            minutes = (time.monotonic() - saved_at) / 60.0
            if self._at_boundary() or self.stopping or minutes >= self.config.checkpoint_minutes:
                self._save(session)
                self._end_of_epoch(session, stop)
                saved_at = time.monotonic()
        if self.is_chief:
            self.progress.close()
            self.log.close()
        return Outcome(self.step, self.step < self.total_steps, self.test, self.is_chief)

    def _restore(self, session: tf.Session) -> None:
        """The chief's part of the start: the newest checkpoint, or initial values from another."""
        restored = checkpoint.restore_newest(self.saver, session, self.checkpoints, self.report)
        if restored is None and self.config.init_from:
            self._init_from(session)
        elif self.config.init_from:
            self.report("NOTE: --init_from is not used: the run goes on from its own checkpoint")

    def _train_step(self, session: tf.Session, stop: StopRequest) -> None:
        """One update. Where there are several workers, it also says whether any of them was asked to stop."""
        started = time.monotonic()
        rate = self._learning_rate()
        for _ in range(self.config.accumulation_steps - 1):
            session.run(self.graph.accumulate)
        built = self.graph
        fetches = [built.loss, built.accuracy, built.gradient_norm, built.stops, built.update]
        feeds = {built.learning_rate: rate, built.stop: float(stop())}
        loss, accuracy, norm, stops, _ = session.run(fetches, feeds)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise NumericsError(self._what_went_wrong(session, loss, norm))
        self.stopping = stops > 0 or (self.replication.workers == 1 and stop())
        self.last = {"learning_rate": rate, "gradient_norm": float(norm)}
        first = self.step % self.steps_per_epoch * self.config.update_examples()
        images = min(self.config.update_examples(), self.examples - first)
        seconds = time.monotonic() - started
        self.step += 1
        self.window_seconds += seconds
        self.window_images += images
        if self.is_chief:
            self.progress.update(self.step, self._epoch(), float(loss), float(accuracy), images / seconds)

    def _learning_rate(self) -> float:
        config = self.config
        warmup_steps = int(round(config.warmup_epochs * self.steps_per_epoch))
        return schedules.learning_rate(
            self.step,
            config.lr_schedule,
            config.base_learning_rate(),
            self.steps_per_epoch,
            self.total_steps,
            warmup_steps,
        )

    def _log(self, session: tf.Session) -> None:
        """A line of metrics over the steps since the last one."""
        loss, accuracy = self._means(session, "window")
        session.run(self.graph.resets["window"])
        if not self.is_chief:
            return
        self.log.metrics(
            {
                "split": "train",
                "step": self.step,
                "epoch": self._epoch(),
                "loss": loss,
                "accuracy": accuracy,
                "learning_rate": self.last["learning_rate"],
                "images_per_second": self.window_images / self.window_seconds,
                "gradient_norm": self.last["gradient_norm"],
                "loss_scale": None,
                "skipped_steps": 0,
            }
        )
        self.window_seconds, self.window_images = 0.0, 0

    def _means(self, session: tf.Session, name: str) -> Tuple[float, float]:
        """Mean loss and accuracy over the examples of the window or epoch so far."""
        loss, correct, examples = [float(value) for value in session.run(self.graph.sums[name])]
        return loss / max(examples, 1.0), correct / max(examples, 1.0)

    def _save(self, session: tf.Session) -> None:
        if not session.run(self.graph.checks.variables_finite):
            raise NumericsError("step %d left weights that are not finite; %s" % (self.step, self._advice()))
        if not self.is_chief:
            return
        checkpoint.save(self.saver, session, self.checkpoints, self.step)
        checkpoint.prune(self.checkpoints, logs.best_step(self.config.model_dir))

    def _end_of_epoch(self, session: tf.Session, stop: StopRequest) -> None:
        """Evaluates and logs, if an epoch or the run is over. Safe to repeat: a resumed run starts with it.

        The chief evaluates and the other workers wait for it. A stop that comes meanwhile is agreed on at its end.
        """
        if not self._at_boundary():
            return
        done = not (self.is_chief and self._evaluates()) or self._evaluate_and_log(session, stop)
        if done and self.step % self.steps_per_epoch == 0:
            session.run(self.graph.resets["epoch"])
        self.stopping = self.stopping or session.run(self.agreed, {self.graph.stop: float(stop())}) > 0

    def _evaluates(self) -> bool:
        """Whether the epoch that has just ended is one that is evaluated."""
        steps = self.steps_per_epoch * self.config.epochs_between_evals
        return self.step % steps == 0 or self.step == self.total_steps

    def _evaluate_and_log(self, session: tf.Session, stop: StopRequest) -> bool:
        """The test line, and the epoch's line. False if a stop came before the evaluation's end."""
        self.test = self._recorded_test() or self._evaluate(session, stop)
        if self.test is None:
            return False
        train_loss, train_accuracy = self._means(session, "epoch")
        epoch, epochs = int(math.ceil(self._epoch())), int(math.ceil(self.total_steps / self.steps_per_epoch))
        figures = (epoch, epochs, train_loss, train_accuracy, self.test["loss"], self.test["accuracy"])
        line = "epoch: %d/%d, train_loss: %.4f, train_acc: %.4f, test_loss: %.4f, test_acc: %.4f" % figures
        if self.log.epoch(epoch, line):
            self.progress.say(line)
        checkpoint.prune(self.checkpoints, logs.best_step(self.config.model_dir))
        return True

    def _recorded_test(self) -> Optional[Dict[str, Any]]:
        records = logs.read_metrics(self.config.model_dir)
        tests = [record for record in records if record["split"] == "test" and record["step"] == self.step]
        return tests[-1] if tests else None

    def _evaluate(self, session: tf.Session, stop: StopRequest) -> Optional[Dict[str, Any]]:
        result = evaluate.evaluate(
            session, self.graph.predictions, self.dataset.test, self.scale, self.config.eval_batch_size, stop
        )
        if result is None:
            return None
        self.log.metrics(result.record(self.step, self._epoch()))
        return result.record(self.step, self._epoch())

    def _at_boundary(self) -> bool:
        return self.step > 0 and (self.step % self.steps_per_epoch == 0 or self.step == self.total_steps)

    def _epoch(self) -> float:
        return self.step / self.steps_per_epoch

    def _start_batches(self, session: tf.Session) -> None:
        split = self.dataset.train
        session.run(self.batches.initializer, self.batches.feeds(split.images, split.labels, self.step))

    def _init_from(self, session: tf.Session) -> None:
        options = self.config.model_options()
        values, restored = checkpoint.initial_values(
            self.config.init_from, self.config.arch, options, self.assigner.shapes
        )
        self.assigner.assign(session, values)
        self.report(restored.table(self.config.init_from))

    def _what_went_wrong(self, session: tf.Session, loss: float, norm: float) -> str:
        """Runs the step's micro-batches once more, with the checks. The failed step has changed nothing."""
        self._start_batches(session)
        checks, bad = self.graph.checks, None
        for _ in range(self.config.accumulation_steps):
            bad = bad or checks.first_bad(session.run(checks.finite))
        bad = bad or "none; the squares of the gradients are too large to add"
        what = "the loss is %s" % loss if not math.isfinite(loss) else "the gradient's norm is %s" % norm
        return "step %d: %s. First tensor that is not finite: %s. %s" % (self.step + 1, what, bad, self._advice())

    def _advice(self) -> str:
        saved = checkpoint.steps(self.checkpoints)
        stays = "No checkpoint had been saved yet"
        if saved:
            stays = "The last good checkpoint stays: %s" % checkpoint.path_of(self.checkpoints, saved[-1])
        return "Try a lower --learning_rate, --warmup_epochs, or --clip_mode=global_norm --clip_value=1. %s." % stays
