"""The warning about stock TensorFlow 1.x on new GPUs."""

import pytest

from senet_tf1 import gpus


@pytest.mark.parametrize(
    "version,capabilities,environ,named",
    [
        ("1.15.5", [(9, 0), (7, 0), (8, 0)], {}, "8.0, 9.0"),
        ("1.15.5", [(7, 5), (3, 5)], {}, None),
        ("1.15.5", [], {}, None),
        ("2.21.0", [(9, 0)], {}, None),
        ("1.15.5", [(8, 6)], {"NVIDIA_TENSORFLOW_VERSION": "23.03"}, None),
    ],
)
def test_only_stock_tensorflow_1_on_ampere_and_later(version, capabilities, environ, named, tmp_path):
    found = gpus.warning(version, str(tmp_path / "tensorflow" / "__init__.py"), capabilities, environ)
    assert (found is None) if named is None else ("compute capability %s " % named in found)


def test_nvidia_s_wheel_is_known_by_its_metadata(tmp_path):
    (tmp_path / "nvidia_tensorflow-1.15.5+nv23.3.dist-info").mkdir()
    assert gpus.warning("1.15.5", str(tmp_path / "tensorflow" / "__init__.py"), [(8, 0)], {}) is None


def test_without_a_driver_there_are_none(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(gpus.ctypes, "CDLL", missing)
    assert gpus.compute_capabilities() == []
