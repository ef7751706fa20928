"""The program behind `run_cifar10.py`: flags -> Config -> train, evaluate, predict or info."""

import json
import os
import sys
from typing import Any, Dict, List

from absl import flags as absl_flags

from senet_tf1 import environment, flags
from senet_tf1.errors import ConfigError, SenetError


def main(argv: List[str]) -> int:
    """Runs the program. Returns the exit code: 0, 1 for a run that failed, 2 for usage."""
    environment.prepare(os.environ)
    values = absl_flags.FlagValues()
    flags.define(values)
    files = flags.parse(values, argv)
    try:
        given = flags.given(values)
        images = list(values[flags.LIST_OF_IMAGES].value) + files
        mode = given.get("mode", "train")
        if images and mode != "predict":
            raise ConfigError("%s: file names are for --mode=predict only" % " ".join(images))
        return _run(mode, given, images)
    except SenetError as error:
        print("ERROR: %s" % error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print("ERROR: %s" % error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _run(mode: str, given: Dict[str, Any], images: List[str]) -> int:
    # Not before the flags are parsed: TensorFlow takes seconds to import, and `prepare` must come first.
    from senet_tf1 import config
    from senet_tf1.compat import tf, use_graph_mode

    use_graph_mode()
    tf.logging.set_verbosity(tf.logging.ERROR)
    if mode in ("evaluate", "predict"):
        return {"evaluate": _evaluate, "predict": _predict}[mode](given, images)
    settings = config.resolve(given)
    return _info(settings) if mode == "info" else _train(settings)


def _train(settings) -> int:
    from senet_tf1 import train

    outcome = train.train(settings, report=lambda line: print(line, flush=True))
    if outcome.test:
        print(
            "step %(step)d: test loss %(loss).4f, accuracy %(accuracy).4f, top-5 %(top5).4f, %(examples)d examples"
            % outcome.test
        )
    if outcome.stopped:
        print("stopped at step %d; the same command goes on from there" % outcome.step)
    if outcome.wrote:
        print("checkpoints, metrics.jsonl and logs.txt are in %s" % settings.model_dir)
    return 0


def _evaluate(given: Dict[str, Any], unused_images: List[str]) -> int:
    from senet_tf1 import data, evaluate, run_dir, trained

    settings = run_dir.settings_of_run(given)
    dataset = data.load(settings.dataset, settings.data_dir, lambda line: print(line, flush=True))
    with trained.opened(settings) as network:
        run_dir.check_classes(dataset, network.class_names)
        result = evaluate.evaluate(
            network.session, network.predictions, dataset.test, network.scale, settings.eval_batch_size
        )
    print("%s on the test set of %s" % (network.checkpoint, dataset.name))
    print(evaluate.table(result, network.class_names))
    return 0


def _predict(given: Dict[str, Any], images: List[str]) -> int:
    from senet_tf1 import predict, run_dir, trained

    if not images:
        raise ConfigError("--mode=predict needs image files: --images a.png b.jpg")
    settings = run_dir.settings_of_run(given)
    with trained.opened(settings) as network:
        results = predict.predict(network, images)
    if settings.json:
        print(json.dumps([result.record() for result in results], indent=2))
    else:
        print(predict.table(results))
    return 0


def _info(settings) -> int:
    from senet_tf1 import info

    print(info.table(settings, info.parts(settings)))
    return 0
