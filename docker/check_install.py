#!/usr/bin/env python3
"""Runs the Python part of a Dockerfile without Docker: its COPY and `RUN python3` lines, in a new virtual environment.

    python3 docker/check_install.py docker/Dockerfile.cpu --python python3.11
    python3 docker/check_install.py docker/Dockerfile.cuda10.0-tf1.15 --python python3.6 --base-has pip==9.0.1

The lines are read from the Dockerfile, so the check and the image cannot drift apart. What it does not run: the base
image, `apt-get`, and anything that needs a GPU.

Then it checks that
  - every installed package is in the constraint file with that very version;
  - TensorFlow and senet_tf1 can be imported from any directory;
  - the ENTRYPOINT's script answers `--help` and `--mode=info`.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Dict, List, NamedTuple, Tuple

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SCRIPT = "run_cifar10.py"

Instruction = NamedTuple("Instruction", [("keyword", str), ("argument", str)])


def instructions(dockerfile: str) -> List[Instruction]:
    """A Dockerfile's instructions in order: comments dropped, continued lines joined, build arguments filled in."""
    with open(dockerfile, encoding="utf-8") as f:
        lines = [line.strip() for line in f if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    result, defaults = [], {}  # type: List[Instruction], Dict[str, str]
    for line in joined.split("\n"):
        keyword, argument = line.split(None, 1)
        for name, value in defaults.items():
            argument = argument.replace("${%s}" % name, value)
        if keyword == "ARG":
            defaults.update([argument.split("=", 1)])
        result.append(Instruction(keyword, argument))
    return result


def shell_commands(dockerfile: str) -> List[str]:
    """Every command of every RUN line, in order; a line `a && b` holds two."""
    return [
        command.strip()
        for instruction in instructions(dockerfile)
        if instruction.keyword == "RUN"
        for command in instruction.argument.split(" && ")
    ]


def copies(dockerfile: str) -> List[Tuple[List[str], str]]:
    """The COPY lines as (sources relative to the repository, destination relative to WORKDIR)."""
    words = [i.argument.split() for i in instructions(dockerfile) if i.keyword == "COPY"]
    return [(w[:-1], w[-1]) for w in words]


def entrypoint(dockerfile: str) -> List[str]:
    """The words of the ENTRYPOINT, which must be in its JSON form."""
    return json.loads([i.argument for i in instructions(dockerfile) if i.keyword == "ENTRYPOINT"][-1])


def pins(constraints: str) -> Dict[str, str]:
    """{package: version} of a constraint file; names as PyPI compares them (lower case, `-` for `_` and `.`).

    Raises:
      ValueError: a line that is no exact pin.
    """
    result = {}
    with open(constraints, encoding="utf-8") as f:
        for line in f:
            line = line.split("#")[0].strip()
            if not line:
                continue
            match = re.match(r"^([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)$", line)
            if match is None:
                raise ValueError("%s: %r is not of the form package==version" % (constraints, line))
            result[_canonical(match.group(1))] = match.group(2)
    return result


def _canonical(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def _copy_into(root: str, dockerfile: str) -> None:
    """What the COPY lines do; a missing source ends the check as it would end the build."""
    for sources, destination in copies(dockerfile):
        for source in sources:
            source_path = os.path.join(REPOSITORY, source)
            if not os.path.exists(source_path):
                raise SystemExit("%s copies %s, which is not in %s" % (dockerfile, source, REPOSITORY))
            target = os.path.join(root, destination)
            if os.path.isdir(source_path):
                shutil.copytree(source_path, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source_path, target)


def _run(command: str, cwd: str, environment: Dict[str, str]) -> str:
    """Runs one shell command, shows it and its output, returns its standard output; ends the check if it fails."""
    print("+ " + command, flush=True)
    process = subprocess.run(
        command, shell=True, cwd=cwd, env=environment, stdout=subprocess.PIPE, universal_newlines=True
    )
    print("\n".join("    " + line for line in process.stdout.splitlines()[-25:]), flush=True)
    if process.returncode != 0:
        raise SystemExit("failed with exit code %d: %s" % (process.returncode, command))
    return process.stdout


def _check_pins(installed: str, constraints: Dict[str, str]) -> None:
    """Compares `pip freeze --all` with the constraint file: nothing may be installed that it does not pin."""
    found = dict(line.split("==") for line in installed.split() if "==" in line)
    found = {_canonical(name): version for name, version in found.items()}
    found.pop("senet-tf1", None)
    wrong = ["%s==%s" % item for item in sorted(found.items()) if constraints.get(item[0]) != item[1]]
    if wrong:
        raise SystemExit("not in the constraint file with this version: " + ", ".join(wrong))
    print("%d packages installed, all as pinned" % len(found))


def check(dockerfile: str, python: str, base_has: List[str], root: str) -> None:
    """Builds the environment under `root` and runs the checks; ends with a message at the first failure."""
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
    subprocess.run([python, "-m", "venv", os.path.join(root, "venv")], check=True)
    environment["PATH"] = os.path.join(root, "venv", "bin") + os.pathsep + environment["PATH"]
    environment.pop("PYTHONPATH", None)
    work = os.path.join(root, "workspace")
    os.mkdir(work)
    if base_has:
        _run("python3 -m pip install -q --upgrade " + " ".join("'%s'" % r for r in base_has), work, environment)
    _copy_into(work, dockerfile)
    for command in shell_commands(dockerfile):
        if command.startswith("python3 "):
            _run(command.replace(" pip install ", " pip install -q "), work, environment)

    frozen = _run("python3 -m pip freeze --all", work, environment)
    constraint_files = [s for sources, _ in copies(dockerfile) for s in sources if "constraints" in s]
    if constraint_files:
        _check_pins(frozen, pins(os.path.join(REPOSITORY, constraint_files[0])))
    _run(
        'python3 -c "import sys, senet_tf1; from senet_tf1.compat import tf;'
        " print('Python', sys.version.split()[0], '| TensorFlow', tf.__version__,"
        " '| built with CUDA:', tf.test.is_built_with_cuda(), '| senet_tf1', senet_tf1.__version__)\"",
        root,
        environment,
    )
    if _SCRIPT in entrypoint(dockerfile):
        _run("python3 %s --help > help.txt && head -n 5 help.txt" % _SCRIPT, work, environment)
        _run("python3 %s --mode=info" % _SCRIPT, work, environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dockerfile")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the version that the base image has")
    parser.add_argument(
        "--base-has", nargs="*", default=[], metavar="REQUIREMENT", help="what the base image already has installed"
    )
    parser.add_argument("--keep", action="store_true", help="leave the environment in place and say where it is")
    arguments = parser.parse_args()
    root = tempfile.mkdtemp(prefix="check_install_")
    try:
        check(arguments.dockerfile, arguments.python, arguments.base_has, root)
        print("OK: %s" % arguments.dockerfile)
    finally:
        if arguments.keep:
            print("kept: %s" % root)
        else:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
