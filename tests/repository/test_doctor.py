"""Each wrong state of a machine gives one sentence with its fix, and the right exit code."""

import ast
import collections
import contextlib
import io
import shutil
import socket
import sys
import tempfile
import types
from importlib import metadata

import pytest

from course_lib import doctor

GIBIBYTE = 2**30


def fake_torch(version="2.13.0+cpu", gpus=0, cuda=None, gloo=True, nccl=True, available=True):
    torch = types.ModuleType("torch")
    torch.__version__ = version
    torch.version = types.SimpleNamespace(cuda=cuda)
    torch.cuda = types.SimpleNamespace(device_count=lambda: gpus)
    torch.distributed = types.ModuleType("torch.distributed")
    torch.distributed.is_available = lambda: available
    torch.distributed.is_gloo_available = lambda: gloo
    torch.distributed.is_nccl_available = lambda: nccl
    return torch


@pytest.fixture
def healthy(monkeypatch):
    """A machine that lacks nothing; the function it returns takes something away."""

    def torch(**changes):
        fake = fake_torch(**changes)
        monkeypatch.setitem(sys.modules, "torch", fake)
        monkeypatch.setitem(sys.modules, "torch.distributed", fake.distributed)

    def space(**free):
        usage = collections.namedtuple("usage", "free")
        monkeypatch.setattr(
            shutil,
            "disk_usage",
            lambda path: usage(free.get("shm" if path == "/dev/shm" else "tmp", 50 * GIBIBYTE)),
        )

    def packages(**versions):
        installed = {"ipywidgets": "8.1.9", "jupyterlab_widgets": "3.0.17"} | versions

        def version(name):
            if installed[name] is None:
                raise metadata.PackageNotFoundError(name)
            return installed[name]

        monkeypatch.setattr(metadata, "version", version)

    def python(*version):
        monkeypatch.setattr(sys, "version_info", version)

    def temporary(folder):
        monkeypatch.setattr(tempfile, "gettempdir", lambda: folder)

    torch()
    space()
    packages()
    python(3, 12, 1)
    temporary("/tmp")
    monkeypatch.setattr("os.path.isdir", lambda path: True)
    return types.SimpleNamespace(
        torch=torch, space=space, packages=packages, python=python, temporary=temporary
    )


def examined() -> tuple[int, list[str]]:
    """The exit code, and the lines about what is not all right."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = doctor.main()
    return code, [line for line in printed.getvalue().splitlines() if not line.startswith("ok")]


def test_a_healthy_machine(healthy, capsys):
    assert doctor.main() == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok    Python 3.12.1.",
        "ok    torch 2.13.0+cpu.",
        "ok    The loopback address 127.0.0.1 answers.",
        "ok    50 GiB of shared memory.",
        "ok    50 GiB of temporary space.",
        "ok    ipywidgets 8.1.9 with jupyterlab_widgets 3.0.17.",
        'ok    device="auto" takes gloo on the CPU: this torch is not built for NVIDIA GPUs.',
    ]


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ((3, 9, 6), "fix   Python 3.9.6 is too old: install one from 3.11 to 3.14"),
        ((3, 15, 0), "fix   Python 3.15.0 is too new: install one from 3.11 to 3.14"),
    ],
)
def test_python_out_of_range(healthy, version, sentence):
    healthy.python(*version)
    code, (line,) = examined()
    assert code == 1
    assert line == f"{sentence} and run `make lab PYTHON=python3.14`."


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("2.9.1", "torch 2.9.1 is too old for this course"),
        ("1.13.1+cu117", "torch 1.13.1+cu117 is too old for this course"),
        ("2.15.0.dev20270101", "torch 2.15.0.dev20270101 is newer than this course was tried with"),
    ],
)
def test_torch_out_of_range(healthy, version, sentence):
    healthy.torch(version=version)
    assert examined() == (1, [f"fix   {sentence}: `pip install 'torch>=2.10,<2.15'`."])


def test_torch_missing(healthy, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, (line,) = examined()
    assert code == 1
    assert line.startswith(f"fix   torch is not installed in {sys.prefix}: run `make lab`, or")


def test_torch_that_does_not_load(healthy, monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open\\nmore')")
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.syspath_prepend(tmp_path)
    assert examined() == (
        1,
        [
            "fix   torch is installed but does not load (libcudart.so.13: cannot open):"
            " run `make clean lab` for a fresh one."
        ],
    )


@pytest.mark.parametrize("lacks", [{"gloo": False}, {"available": False}])
def test_torch_without_gloo(healthy, lacks):
    healthy.torch(**lacks)
    code, (line,) = examined()
    assert code == 1
    assert line.startswith("fix   torch 2.13.0+cpu was built without gloo")


def test_no_loopback(healthy, monkeypatch):
    def refuse(self, address):
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    assert examined() == (
        1,
        [
            "fix   Nothing answers on 127.0.0.1, where the ranks meet (Cannot assign requested"
            " address): bring it up (`sudo ip link set lo up`), or let Python through the firewall."
        ],
    )


def test_too_little_shared_memory(healthy):
    healthy.space(shm=8 * 2**20)
    code, (line,) = examined()
    assert code == 1
    assert line.startswith(
        "fix   Only 8 MiB of shared memory is free in /dev/shm, and 64 MiB are needed:"
    )
    assert "docker run --shm-size=1g" in line


def test_a_system_without_dev_shm_is_fine(healthy, monkeypatch):
    monkeypatch.setattr("os.path.isdir", lambda path: path != "/dev/shm")
    assert examined() == (0, [])


def test_too_little_temporary_space(healthy):
    healthy.space(tmp=3 * 2**20)
    assert examined() == (
        1,
        [
            "fix   Only 3 MiB are free in /tmp, and 256 MiB are needed: make room there,"
            " or set TMPDIR to a folder with more."
        ],
    )


def test_no_temporary_folder(healthy, monkeypatch):
    def none():
        raise FileNotFoundError

    monkeypatch.setattr(tempfile, "gettempdir", none)
    code, (line,) = examined()
    assert code == 1
    assert line.startswith("fix   No temporary folder can be written to: make /tmp writable")


def test_a_temporary_path_too_long_for_sockets(healthy):
    healthy.temporary("/" + "t" * 99)
    code, (line,) = examined()
    assert code == 1
    assert "has 100 bytes" in line
    assert "set TMPDIR to a shorter one" in line


@pytest.mark.parametrize(
    ("kernel", "lab", "sentence"),
    [
        (None, "3.0.17", "ipywidgets is not installed, so figures come without sliders"),
        ("8.1.9", None, "ipywidgets 8.1.9 and no jupyterlab_widgets do not fit together"),
        ("8.1.9", "1.1.9", "ipywidgets 8.1.9 and jupyterlab_widgets 1.1.9 do not fit together"),
        ("7.7.5", "3.0.17", "ipywidgets 7.7.5 and jupyterlab_widgets 3.0.17 do not fit together"),
    ],
)
def test_widgets_that_do_not_match_are_no_reason_to_stop(healthy, kernel, lab, sentence):
    healthy.packages(ipywidgets=kernel, jupyterlab_widgets=lab)
    code, (line,) = examined()
    assert code == 0
    assert line.startswith(f"note  {sentence}")
    assert "`pip install 'ipywidgets==8.*' 'jupyterlab_widgets==3.*'`" in line


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"gpus": 1, "cuda": "13.0"}, "takes NCCL, one GPU per rank, for 1 rank, and gloo"),
        (
            {"gpus": 8, "cuda": "13.0"},
            "takes NCCL, one GPU per rank, for up to 8 ranks, and gloo",
        ),
        ({"gpus": 2, "cuda": "13.0", "nccl": False}, "takes gloo on the CPU: torch sees GPUs but"),
        ({"cuda": "13.0"}, "takes gloo on the CPU: torch sees no GPU whose driver suits CUDA 13.0"),
    ],
)
def test_the_backend_and_why(healthy, state, sentence):
    healthy.torch(**state)
    assert sentence in doctor.explain_device().sentence
    assert examined() == (0, [])


def test_several_things_are_said_at_once(healthy, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    healthy.python(3, 8, 10)
    healthy.space(tmp=0)
    code, lines = examined()
    assert code == 1
    assert len(lines) == 3


@pytest.mark.parametrize("file", ["doctor.py", "__init__.py"])
def test_old_pythons_can_read_what_the_doctor_needs(root, file):
    """Python 3.8 must get as far as the sentence: its grammar, and no annotation evaluated."""
    tree = ast.parse((root / "course_lib" / file).read_text(), feature_version=(3, 8))
    futures = [node for node in tree.body if getattr(node, "module", None) == "__future__"]
    assert "annotations" in {alias.name for node in futures for alias in node.names}
