"""The files in docker/ held to the facts they rest on. No Docker engine, no network, no TensorFlow.

What these tests cannot see - whether the pip lines work - is what docker/check_install.py runs.
"""

import importlib.util
import os
import re

import pytest

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

CUDA10 = "docker/Dockerfile.cuda10.0-tf1.15"
# Dockerfile: (its constraint file, the TensorFlow requirement it installs). None: the base image's own.
IMAGES = {
    CUDA10: ("docker/constraints-tf1.15-py36.txt", "tensorflow-gpu==1.15.5"),
    "docker/Dockerfile.nvidia-tf1": (None, None),
    "docker/Dockerfile.tf2-gpu": ("docker/constraints-tf2.21-py311.txt", "tensorflow[and-cuda]==2.21.0"),
    "docker/Dockerfile.cpu": ("docker/constraints-tf2.21-py311.txt", "tensorflow==2.21.0"),
}
INSTALL_TENSORFLOW = sorted(name for name, (constraints, _) in IMAGES.items() if constraints)
TF1_CONSTRAINTS = ["docker/constraints-tf1.15-py36.txt", "docker/constraints-tf1.15-py37.txt"]
TF2_CONSTRAINTS = ["docker/constraints-tf2.21-py311.txt"]


def _load_check_install():
    spec = importlib.util.spec_from_file_location(
        "check_install", os.path.join(REPOSITORY, "docker", "check_install.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_install = _load_check_install()


@pytest.fixture(params=sorted(IMAGES))
def dockerfile(request):
    return request.param


def _path(name):
    return os.path.join(REPOSITORY, name)


def _read(name):
    with open(_path(name), encoding="utf-8") as f:
        return f.read()


def _keyword(dockerfile, keyword):
    return [i.argument for i in check_install.instructions(_path(dockerfile)) if i.keyword == keyword]


def _pip_installs(dockerfile):
    return [c for c in check_install.shell_commands(_path(dockerfile)) if c.startswith("python3 -m pip install ")]


def _version(text):
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


# The Dockerfiles


def test_every_dockerfile_and_constraint_file_is_covered_here():
    names = {"docker/" + name for name in os.listdir(_path("docker"))}
    assert {name for name in names if name.startswith("docker/Dockerfile.")} == set(IMAGES)
    assert {n for n in names if n.startswith("docker/constraints-")} == set(TF1_CONSTRAINTS + TF2_CONSTRAINTS)


def test_base_image_has_a_fixed_tag(dockerfile):
    (base,) = _keyword(dockerfile, "FROM")
    _, tag = base.rsplit(":", 1)
    assert re.search(r"\d", tag) and "latest" not in tag, base


def test_no_deleted_base_image_by_default(dockerfile):
    """NVIDIA deleted nvidia/cuda:10.x from Docker Hub and NGC in 2023; it may only be a --build-arg."""
    assert not _keyword(dockerfile, "FROM")[0].startswith("nvidia/cuda:10.")


def test_copied_files_exist_and_are_named_one_by_one(dockerfile):
    """`COPY .` would put data/ and runs/ into the image: there is no .dockerignore at the top."""
    sources = [s for some, _ in check_install.copies(_path(dockerfile)) for s in some]
    assert [s for s in sources if not os.path.exists(_path(s))] == []
    constraints = [c for c in [IMAGES[dockerfile][0]] if c]
    expected = constraints + ["setup.py", "README.md", "LICENSE", "run_cifar10.py", "senet_tf1"]
    assert sorted(sources) == sorted(expected)


def test_every_pip_line_uses_the_constraint_file_of_this_image(dockerfile):
    constraints, _ = IMAGES[dockerfile]
    installs = _pip_installs(dockerfile)
    assert installs
    if constraints is None:
        # NVIDIA's TensorFlow is on no index that pip knows: pip may add senet_tf1 and nothing else.
        assert [i for i in installs if "--no-deps" not in i] == []
        return
    assert ([constraints], "constraints.txt") in check_install.copies(_path(dockerfile))
    assert [i for i in installs if "--constraint constraints.txt" not in i] == []


@pytest.mark.parametrize("dockerfile", INSTALL_TENSORFLOW)
def test_pip_is_upgraded_before_it_installs_tensorflow(dockerfile):
    """Ubuntu 18.04's pip 9 does not see manylinux2010 wheels, so it finds no TensorFlow newer than 1.14."""
    first = _pip_installs(dockerfile)[0].split()
    assert "--upgrade" in first and first[-3:] == ["pip", "setuptools", "wheel"]


@pytest.mark.parametrize("dockerfile", INSTALL_TENSORFLOW)
def test_tensorflow_version_is_the_one_in_the_constraint_file(dockerfile):
    constraints, requirement = IMAGES[dockerfile]
    words = [word.strip('"') for install in _pip_installs(dockerfile) for word in install.split()]
    assert [w for w in words if w.startswith("tensorflow")] == [requirement]
    package, version = requirement.split("==")
    assert check_install.pins(_path(constraints))[package.split("[")[0]] == version


def test_nothing_is_installed_from_an_address(dockerfile):
    """What is installed comes from the index that pip is set up with, so a mirror or proxy works too."""
    for install in _pip_installs(dockerfile):
        assert "http" not in install and "index-url" not in install, install


def test_cuda10_image_cannot_end_up_with_the_cpu_build():
    """PyPI's `tensorflow` 1.15.5 is a CPU build, `tensorflow-gpu` the CUDA 10.0 one, and both write the same files."""
    install = _pip_installs(CUDA10)[-1]
    assert install.endswith(" .") and "--no-deps" in install
    assert any("is_built_with_cuda()" in command for command in check_install.shell_commands(_path(CUDA10)))


def test_sources_with_the_revoked_key_go_before_the_first_apt_get_update(dockerfile):
    commands = check_install.shell_commands(_path(dockerfile))
    updates = [n for n, command in enumerate(commands) if "apt-get update" in command]
    assert bool(updates) == (dockerfile == CUDA10)
    for first in updates[:1]:
        removed = " ".join(command for command in commands[:first] if command.startswith("rm -f "))
        assert "/etc/apt/sources.list.d/cuda*.list" in removed
        assert "/etc/apt/sources.list.d/nvidia-ml*.list" in removed


def test_runs_the_entry_script_as_an_ordinary_user(dockerfile):
    assert _keyword(dockerfile, "WORKDIR") == ["/workspace"]
    assert check_install.entrypoint(_path(dockerfile))[-2:] == ["python3", "run_cifar10.py"]
    assert _keyword(dockerfile, "USER") == ["1000:1000"]
    # Any user id must be able to write results, the home directory included.
    assert "install -d -m 1777 data runs" in check_install.shell_commands(_path(dockerfile))
    environment = " ".join(_keyword(dockerfile, "ENV")).split()
    assert "HOME=/tmp" in environment and "LC_ALL=C.UTF-8" in environment


# The constraint files


@pytest.mark.parametrize("name", TF1_CONSTRAINTS)
def test_tf1_pins_satisfy_what_tensorflow_1_15_requires(name):
    pins = check_install.pins(_path(name))
    assert pins["tensorflow"] == pins["tensorflow-gpu"] == "1.15.5"
    assert _version(pins["protobuf"]) < (3, 21)
    assert (1, 16, 0) <= _version(pins["numpy"]) < (1, 19, 0)
    assert _version(pins["h5py"]) <= (2, 10, 0)
    assert pins["gast"] == "0.2.2"
    assert _version(pins["tensorboard"])[:2] == (1, 15)
    assert pins["tensorflow-estimator"] == "1.15.1"


def test_python_3_6_pins_are_not_newer_than_its_last_releases():
    pins = check_install.pins(_path("docker/constraints-tf1.15-py36.txt"))
    last = {"pip": (21, 3, 1), "setuptools": (59, 6, 0), "wheel": (0, 37, 1), "grpcio": (1, 48, 2)}
    last.update({"werkzeug": (2, 0, 3), "markdown": (3, 3, 7), "importlib-metadata": (4, 8, 3)})
    assert [package for package in last if _version(pins[package]) > last[package]] == []


def test_tf2_pins_satisfy_what_tensorflow_2_21_requires():
    pins = check_install.pins(_path("docker/constraints-tf2.21-py311.txt"))
    assert pins["tensorflow"] == "2.21.0"
    assert (6, 31, 1) <= _version(pins["protobuf"]) < (8,)
    assert _version(pins["numpy"]) >= (1, 26)
    assert (3, 11) <= _version(pins["h5py"]) < (3, 15)
    # cuDNN 9.11 dropped the GPUs below compute capability 7.5: Pascal and Volta.
    assert (9, 3, 0) <= _version(pins["nvidia-cudnn-cu12"]) < (9, 11)
    cuda = sorted(package for package in pins if package.startswith("nvidia-"))
    assert len(cuda) == 12 and all(package.endswith("-cu12") for package in cuda)


@pytest.mark.parametrize("name", TF1_CONSTRAINTS + TF2_CONSTRAINTS)
def test_every_runtime_dependency_is_pinned_and_the_file_says_how_it_was_made(name):
    text = _read(name)
    assert {"tensorflow", "numpy", "absl-py", "pip", "setuptools", "wheel"} <= set(check_install.pins(_path(name)))
    assert text.startswith("# ") and "How it was made" in text


def test_an_inexact_pin_is_refused(tmp_path):
    path = str(tmp_path / "constraints.txt")
    with open(path, "w") as f:
        f.write("# a comment\nnumpy==1.18.5  # exact\nprotobuf<3.21\n")
    with pytest.raises(ValueError, match="'protobuf<3.21' is not of the form package==version"):
        check_install.pins(path)


# The reader of Dockerfiles that both these tests and check_install.py use


def test_reader_joins_lines_drops_comments_and_fills_in_build_arguments(tmp_path):
    path = str(tmp_path / "Dockerfile")
    with open(path, "w") as f:
        f.write('# comment\nARG BASE=a:1\nFROM ${BASE}\n\nRUN one \\\n    # why\n    && two x\nENTRYPOINT ["p", "q"]\n')
    assert check_install.instructions(path)[1] == ("FROM", "a:1")
    assert check_install.shell_commands(path) == ["one", "two x"]
    assert check_install.entrypoint(path) == ["p", "q"]
