"""The errors this package raises on purpose: each says what was wrong, what was expected and what to do.

The entry point prints the message of a `SenetError` without a traceback and ends the process with its
`exit_code`. Anything else that escapes is a bug and keeps its traceback.
"""


class SenetError(Exception):
    """A problem explained to the user; `exit_code` is what the process ends with."""

    exit_code = 1


class ConfigError(SenetError):
    """A flag or a combination of flags that can't work; raised before anything is written."""

    exit_code = 2


class DataError(SenetError):
    """A data set that is missing, damaged, hostile or can't be stored."""


class CheckpointError(SenetError):
    """A checkpoint that is missing, damaged or belongs to another network."""


class NumericsError(SenetError):
    """A loss or a gradient that is NaN or infinite."""


class WorkerError(SenetError):
    """A worker that is missing, was lost, or broke a step."""


def first_line(error: BaseException) -> str:
    """What an error says in short: TensorFlow's messages go on with the graph and the stack."""
    return str(getattr(error, "message", error)).strip().splitlines()[0][:300]
