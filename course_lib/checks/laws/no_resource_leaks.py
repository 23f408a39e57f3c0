"""A call leaves nothing behind: no hook, thread, open file or child process.

At the thousandth step there would be a thousand of them.
"""

import os
import threading
from pathlib import Path
from typing import Any

from torch import nn

from ._law import Call, Law, Watch
from ._snapshot import tensors

_FILES = Path("/proc/self/fd")
_MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def watch(call: Call) -> Watch:
    before = _left(call)
    yield
    # A thread that ends by itself, and a handle that is waited for later, are given the case.
    yield
    now = _left(call)
    for kind, most in before.items():
        if now[kind] > most:
            return (
                f"{now[kind] - most} more {kind} than before the call, and the next call leaves "
                f"others: {_REMEDY[kind]}"
            )
    return None


_REMEDY = {
    "hooks": "remove() what register_hook returned, or do without",
    "threads": "join() them",
    "open files": "close them",
}
_EXEMPT = {
    "hooks": "hooks",
    "threads": "threads",
    "open files": "files",
}


def _left(call: Call) -> dict[str, int]:
    found = {
        "hooks": sum(_hooks(value) for value in call.arguments.values()),
        "threads": threading.active_count(),
        "open files": _open_files(),
    }
    return {kind: n for kind, n in found.items() if _EXEMPT[kind] not in call.contract.may}


def _open_files() -> int:
    """Of the file system: sockets and pipes are those of the process groups."""
    if not _FILES.exists():
        return 0
    names = (os.readlink(link) for link in _FILES.iterdir() if link.is_symlink())
    return sum(name.startswith("/") and not name.startswith("/dev/") for name in names)


def _hooks(value: Any) -> int:
    """Hooks on a tensor or module, and on the tensors in it."""
    count = sum(
        len(hooks or ())
        for _, tensor in tensors(value)
        if tensor.is_leaf
        for hooks in (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None))
    )
    if isinstance(value, nn.Module):
        count += sum(len(getattr(m, name)) for m in value.modules() for name in _MODULE_HOOKS)
    return count


LAW = Law(watch)
