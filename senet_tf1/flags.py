"""The absl flags, made from `config.FIELDS`."""

import sys
from typing import Any, Dict, List

from absl import flags

from senet_tf1.config import FIELDS

_DEFINERS = {int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string, bool: flags.DEFINE_bool}
LIST_OF_IMAGES = "images"


def define(values: flags.FlagValues) -> None:
    """Defines a flag for each field, and --images. Bounds and choices are checked by `config.resolve`, all at once."""
    for field in FIELDS:
        text = field.help + (" One of: %s." % ", ".join(field.choices) if field.choices else "")
        define_one = _DEFINERS[field.type]
        define_one(field.name, field.default, text, flag_values=values)
    flags.DEFINE_multi_string(LIST_OF_IMAGES, [], "predict: image files (PNG or JPEG, any size).", flag_values=values)


def given(values: flags.FlagValues) -> Dict[str, Any]:
    """The settings that were set on the command line."""
    return {field.name: values[field.name].value for field in FIELDS if values[field.name].present}


def parse(values: flags.FlagValues, argv: List[str]) -> List[str]:
    """Parses a command line; what remains are file names (`--images a.png b.jpg`).

    A flag that is unknown or can't be parsed ends the process with exit code 2, --help with 0.
    """
    values.set_gnu_getopt(True)
    try:
        wants_help = any(word in ("--help", "-help", "-h", "--helpfull") for word in argv[1:])
        rest = values([word for word in argv if word not in ("--help", "-help", "-h", "--helpfull")])[1:]
    except flags.Error as error:
        print("%s\nRun %s --help for all flags." % (error, argv[0]), file=sys.stderr)
        sys.exit(2)
    if wants_help:
        print("usage: python %s [flags]\n\n%s" % (argv[0], values.get_help()))
        sys.exit(0)
    return rest
