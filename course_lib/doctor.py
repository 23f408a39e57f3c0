"""`python -m course_lib.doctor`: is this machine ready, and if not, what mends it?

One sentence for each thing that is wrong, with its fix. Imports nothing but the standard library
until it knows that the rest is there, and runs on Pythons that are too old for everything else.
Exits with 1 if something would stop the ranks from running, else with 0.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import socket
import sys
import tempfile
from importlib import metadata
from typing import NamedTuple

# The first that is supported and the first that no longer is, as in pyproject.toml.
PYTHONS = ((3, 11), (3, 15))
TORCHES = ((2, 10), (2, 15))
# Major versions of ipywidgets and of jupyterlab_widgets, which speak the same protocol.
WIDGETS = (8, 3)

MEBIBYTE = 2**20
SHARED_MEMORY = 64 * MEBIBYTE
TEMPORARY_SPACE = 256 * MEBIBYTE
# A socket's path may have 107 bytes (103 on macOS); multiprocessing adds about 32 to the folder.
TEMPORARY_PATH = 70


class Finding(NamedTuple):
    """What one check found.

    `state` is "ok", "note" (one can work with that) or "fix" (the ranks will not run until then).
    """

    state: str
    sentence: str


def check_python() -> Finding:
    """Is the running Python one that torch is built for?"""
    low, high = PYTHONS
    version = ".".join(map(str, sys.version_info[:3]))
    if low <= sys.version_info[:2] < high:
        return Finding("ok", f"Python {version}.")
    side = "old" if sys.version_info[:2] < low else "new"
    newest = _dotted((high[0], high[1] - 1))
    return Finding(
        "fix",
        f"Python {version} is too {side}: install one from {_dotted(low)} to {newest}"
        f" and run `make lab PYTHON=python{newest}`.",
    )


def check_torch() -> Finding:
    """Is torch there, of a version that the course is tried with, and able to start ranks?"""
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        return Finding(
            "fix",
            f"torch is not installed in {sys.prefix}: run `make lab`,"
            " or `pip install -c constraints.txt -e .` in the environment of your choice.",
        )
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return Finding(
            "fix",
            f"torch is installed but does not load ({reason}):"
            " run `make clean lab` for a fresh one.",
        )
    low, high = TORCHES
    install = f"`pip install 'torch>={_dotted(low)},<{_dotted(high)}'`"
    release = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if release < low:
        return Finding("fix", f"torch {torch.__version__} is too old for this course: {install}.")
    if release >= high:
        return Finding(
            "fix", f"torch {torch.__version__} is newer than this course was tried with: {install}."
        )
    distributed = importlib.import_module("torch.distributed")
    if not (distributed.is_available() and distributed.is_gloo_available()):
        return Finding(
            "fix",
            f"torch {torch.__version__} was built without gloo, over which ranks on a CPU talk:"
            f" take a build from PyPI or conda-forge, {install}.",
        )
    return Finding("ok", f"torch {torch.__version__}.")


def check_loopback() -> Finding:
    """Can two sockets on this machine talk over 127.0.0.1, as the ranks do?"""
    try:
        with socket.socket() as listener:
            listener.settimeout(5)
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            with socket.create_connection(listener.getsockname(), timeout=5):
                listener.accept()[0].close()
    except OSError as error:
        return Finding(
            "fix",
            f"Nothing answers on 127.0.0.1, where the ranks meet ({error.strerror or error}):"
            " bring it up (`sudo ip link set lo up`), or let Python through the firewall.",
        )
    return Finding("ok", "The loopback address 127.0.0.1 answers.")


def check_shared_memory() -> Finding:
    """Is there room in /dev/shm (Linux only), which containers keep small?"""
    if not os.path.isdir("/dev/shm"):
        return Finding("ok", "No /dev/shm here that could limit shared memory.")
    free = shutil.disk_usage("/dev/shm").free
    if free < SHARED_MEMORY:
        return Finding(
            "fix",
            f"Only {_size(free)} of shared memory is free in /dev/shm, and"
            f" {_size(SHARED_MEMORY)} are needed: start the container with more"
            " (`docker run --shm-size=1g`), or remove what was left there.",
        )
    return Finding("ok", f"{_size(free)} of shared memory.")


def check_temporary_space() -> Finding:
    """Is there a temporary folder with room, and a path short enough to hold sockets?"""
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:
        return Finding(
            "fix",
            "No temporary folder can be written to:"
            " make /tmp writable, or set TMPDIR to a folder that is.",
        )
    free = shutil.disk_usage(folder).free
    if free < TEMPORARY_SPACE:
        return Finding(
            "fix",
            f"Only {_size(free)} are free in {folder}, and {_size(TEMPORARY_SPACE)} are needed:"
            " make room there, or set TMPDIR to a folder with more.",
        )
    length = len(os.fsencode(folder))
    if os.name == "posix" and length > TEMPORARY_PATH:
        return Finding(
            "fix",
            f"The path of the temporary folder has {length} bytes, and with more than"
            f" {TEMPORARY_PATH} no socket fits into it: set TMPDIR to a shorter one, such as /tmp.",
        )
    return Finding("ok", f"{_size(free)} of temporary space.")


def check_widgets() -> Finding:
    """Do the kernel's half and JupyterLab's half of the widgets belong together?"""
    kernel, lab = _installed("ipywidgets"), _installed("jupyterlab_widgets")
    install = f"`pip install 'ipywidgets=={WIDGETS[0]}.*' 'jupyterlab_widgets=={WIDGETS[1]}.*'`"
    if kernel is None:
        return Finding(
            "note", f"ipywidgets is not installed, so figures come without sliders: {install}."
        )
    if lab is None or (_major(kernel), _major(lab)) != WIDGETS:
        partner = "no jupyterlab_widgets" if lab is None else f"jupyterlab_widgets {lab}"
        return Finding(
            "note",
            f"ipywidgets {kernel} and {partner} do not fit together, so sliders will not show:"
            f" {install}, then restart JupyterLab.",
        )
    return Finding("ok", f"ipywidgets {kernel} with jupyterlab_widgets {lab}.")


def explain_device() -> Finding:
    """Which backend `run_ranks(..., device="auto")` will take here, and why."""
    torch = importlib.import_module("torch")
    distributed = importlib.import_module("torch.distributed")
    gpus = torch.cuda.device_count()
    if gpus and distributed.is_nccl_available():
        ranks = "1 rank" if gpus == 1 else f"up to {gpus} ranks"
        return Finding(
            "ok",
            f'device="auto" takes NCCL, one GPU per rank, for {ranks}, and gloo on the CPU for'
            f" more: torch sees {gpus} GPU{'' if gpus == 1 else 's'}.",
        )
    if gpus:
        reason = "torch sees GPUs but was built without NCCL"
    elif torch.version.cuda is None:
        reason = "this torch is not built for NVIDIA GPUs"
    else:
        reason = f"torch sees no GPU whose driver suits CUDA {torch.version.cuda}"
    return Finding("ok", f'device="auto" takes gloo on the CPU: {reason}.')


CHECKS = (
    check_python,
    check_torch,
    check_loopback,
    check_shared_memory,
    check_temporary_space,
    check_widgets,
)


def examine() -> list[Finding]:
    """Run all checks; which backend will be taken is told where torch is usable."""
    findings = [check() for check in CHECKS]
    if findings[CHECKS.index(check_torch)].state == "ok":
        findings.append(explain_device())
    return findings


def main() -> int:
    """Print what was found, a line each; 1 if anything must be mended first."""
    findings = examine()
    for state, sentence in findings:
        print(f"{state:<5} {sentence}")
    return int(any(finding.state == "fix" for finding in findings))


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _major(version: str) -> int:
    return int(version.split(".")[0])


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _size(count: int) -> str:
    gibibyte = 1024 * MEBIBYTE
    return f"{count // gibibyte} GiB" if count >= gibibyte else f"{count // MEBIBYTE} MiB"


if __name__ == "__main__":
    sys.exit(main())
