"""Each rank of a graded run by itself, but for what it needs to find and to reach the others.

Inside the sandbox of an answer, every rank gets a file system of its own, in which nobody else's
folder can be found, a folder in memory to write to, its own shared memory, and no sight of other
processes, be they ranks or those that collect the results. Common stay the network, a loopback
device, the store by which a group comes up, the pipe to the launcher, and the job, which has the
inputs of all ranks (TEACHING.md says what it takes to end that). Unnamed ways round them (sockets
of the machine, kernel keys) are closed (`seccomp`).

user_namespaces(7), pid_namespaces(7), mount_namespaces(7).
"""

import os
from collections.abc import Callable
from pathlib import Path

from course_lib.ranks.rundir import RunDir

from . import isolation, seccomp
from .isolation import Sandbox

_SHARES = 8  # of the space for files, each rank has one


def confine(sandbox: Sandbox, run_dir: RunDir, rank: int, tell: Callable[[int], None]) -> None:
    """Go on in a process that is shut off (`course_lib.ranks.launcher_client.Confine`)."""
    isolation.own_namespaces()
    child = os.fork()
    if child:
        tell(child)
        os._exit(0)
    os.setpgid(0, 0)
    _hide_the_others(run_dir, rank, sandbox.limits.disk // _SHARES)
    os.chdir(isolation.WORK)
    os.environ["TMPDIR"] = isolation.WORK
    isolation.drop_rights()
    seccomp.install()


def _hide_the_others(run_dir: RunDir, rank: int, space: int) -> None:
    """Of the run's folder, leave what this rank needs; of all else that can be written, nothing."""
    shown = [run_dir.job, run_dir.events, run_dir.store_file, run_dir.own(rank)]
    run_dir.store_file.touch()
    held = {path: os.open(path, os.O_PATH) for path in shown}
    size = f"size={space},mode=700,nr_inodes=4000"
    isolation.mount_tmpfs(run_dir.path.parent, size)
    for path, fd in held.items():
        path.parent.mkdir(exist_ok=True, parents=True)
        path.mkdir() if path == run_dir.own(rank) else path.touch()
        isolation.bind(f"/proc/self/fd/{fd}", path)
        os.close(fd)
    isolation.bind(str(run_dir.job), run_dir.job, read_only=True)
    if Path(isolation.WORK) not in run_dir.path.parents:
        isolation.mount_tmpfs(Path(isolation.WORK), size)
    isolation.mount_proc()
