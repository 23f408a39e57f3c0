"""Kernels that no other process can rob of their port.

A notebook client chooses free TCP ports and tells its kernel, which binds them a second later.
Ranks open many ports of their own meanwhile, and a kernel that finds one of its ports taken dies as
it starts. Over IPC the addresses are files of the kernel's own, and nothing can come in between.

As a pytest plugin (`-p course_lib.classroom.kernels`) it does so for the kernels of a test run,
those of nbval included, which offers no setting for it.
"""

import os
from typing import Any

from jupyter_client.manager import KernelManager

_init = KernelManager.__init__


def use_ipc() -> None:
    """Let kernels that are started from now on in this process listen on IPC addresses."""
    if os.name == "posix":
        KernelManager.__init__ = _init_with_ipc


def _init_with_ipc(self: KernelManager, *args: Any, **kwargs: Any) -> None:
    kwargs.setdefault("transport", "ipc")
    _init(self, *args, **kwargs)


def pytest_configure() -> None:
    use_ipc()
