"""Kernels that no other process can rob of their port, and that leave the cores to the ranks.

A notebook client chooses free TCP ports and tells its kernel, which binds them a second later.
Ranks open many ports of their own meanwhile, and a kernel that finds one of its ports taken dies as
it starts. Over IPC the addresses are files of the kernel's own, and nothing can come in between.

And by default torch takes all cores, for models so small that its threads mostly wait for each
other, which they do by turning in a circle. Beside ranks, or another notebook, an operation of
microseconds so takes milliseconds of every core. With one thread a kernel also computes the same on
every machine, however many cores it has.

As a pytest plugin (`-p course_lib.classroom.kernels`) it does so for the kernels of a test run,
those of nbval included, which offers no setting for it, and for the processes of the run.
"""

import atexit
import os
import shutil
import tempfile
import uuid
from typing import Any

from jupyter_client.manager import KernelManager

_init = KernelManager.__init__
_folder = ""  # "" until it is wanted


def use_ipc() -> None:
    """Let kernels that are started from now on in this process listen on IPC addresses."""
    global _folder
    if os.name == "posix" and not _folder:
        _folder = tempfile.mkdtemp(prefix="kernels-")
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
        setattr(KernelManager, "__init__", _init_with_ipc)  # noqa: B010 - its place, not its type


def _init_with_ipc(self: KernelManager, *args: Any, **kwargs: Any) -> None:
    if "transport" not in kwargs:
        # Absolute, and the kernel's own: left to itself the address is a name relative to the
        # current folder, which client and kernel need not share, and which others use as well.
        kwargs.update(transport="ipc", ip=os.path.join(_folder, uuid.uuid4().hex[:12]))
    _init(self, *args, **kwargs)


def leave_cores() -> None:
    """Let torch compute with one thread in the processes that this one starts, unless told."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_load_initial_conftests() -> None:
    """Before any of them loads torch, which looks once how many threads it may have."""
    use_ipc()
    leave_cores()
