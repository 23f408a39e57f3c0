"""Each rank of a graded run by itself, but for what it needs to find and to reach the others.

Inside the sandbox of an answer, every rank gets a file system of its own, in which nobody else's
folder can be found, a folder in memory to write to, its own shared memory, and no sight of other
processes, be they ranks or those that collect the results. It is sent its own part of a case, by a
pipe of its own it tells how far it is, and unnamed ways round all this (sockets of the machine,
kernel keys) are closed (`seccomp`).

Groups need more to come up: a store, and connections over the sandbox's loopback device. Before
the first line of an answer runs, all groups are up, and the rank is sealed: the store is gone, and
no socket can be made. What is left between ranks is what the groups have connected, which only
gloo's own threads can read, and what crosses there is counted outside of them (`loopback_traffic`).

user_namespaces(7), pid_namespaces(7), mount_namespaces(7).
"""

import contextlib
import os
import resource
from collections.abc import Callable
from pathlib import Path

from course_lib.ranks.run_directory import RunDir

from . import isolation, seccomp
from .isolation import Sandbox

_store: int | None = None  # by which this process reaches the group's store, until it is sealed


def confine(sandbox: Sandbox, run_dir: RunDir, rank: int, tell: Callable[[int], None]) -> str:
    """Go on in a process that is shut off (`course_lib.ranks.launcher_client.Confine`)."""
    isolation.own_namespaces()
    child = os.fork()
    if child:
        tell(child)
        os._exit(0)
    os.setpgid(0, 0)
    _hide_the_others(run_dir, rank, sandbox.limits.disk // isolation.SHARES)
    os.chdir(isolation.WORK)
    os.environ["TMPDIR"] = isolation.WORK
    # In all, ranks have no more than the run: what one starts is never missing to another.
    share = sandbox.limits.processes // (isolation.SHARES + 1)
    resource.setrlimit(resource.RLIMIT_NPROC, (share, share))
    isolation.drop_rights()
    seccomp.install(seccomp.CONFINED)
    return f"from {__name__} import confined; confined({_store}); "


def confined(store: int) -> None:
    """Let this process know that it is, and by which descriptor it reaches the group's store."""
    global _store
    _store = store
    RunDir.use_store(Path(f"/proc/self/fd/{store}"))
    RunDir.use_places(isolation.RANKS, isolation.PLACES)


def seal() -> None:
    """Let this rank make no further group, nor anything else that others could hear of.

    Does nothing in a process that was not confined, or is sealed already.
    """
    global _store
    if _store is not None:
        os.close(_store)
        _store = None
        seccomp.install(seccomp.SEALED)
        seccomp.deafen(_sockets())


def _sockets() -> list[int]:
    """The descriptors of what this process is connected by."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one by which the folder was listed
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found.append(int(name))
    return found


def _hide_the_others(run_dir: RunDir, rank: int, space: int) -> None:
    """Of the run's folder, leave what this rank needs; of all else that can be written, nothing."""
    shown = [run_dir.job, run_dir.own(rank)]
    run_dir.store_file.touch()
    store = os.open(run_dir.store_file, os.O_RDWR)
    os.set_inheritable(store, True)  # by a fresh Python, if this rank is one
    held = {path: os.open(path, os.O_PATH) for path in shown}
    size = f"size={space},mode=700,nr_inodes=4000"
    for folder in (run_dir.path.parent, Path(isolation.RANKS)):
        isolation.mount_tmpfs(folder, size)
    for path, fd in held.items():
        path.parent.mkdir(exist_ok=True, parents=True)
        path.mkdir() if path == run_dir.own(rank) else path.touch()
        isolation.bind(f"/proc/self/fd/{fd}", path)
        os.close(fd)
    isolation.bind(str(run_dir.job), run_dir.job, read_only=True)
    if Path(isolation.WORK) not in run_dir.path.parents:
        isolation.mount_tmpfs(Path(isolation.WORK), size)
    isolation.mount_proc()
    confined(store)
