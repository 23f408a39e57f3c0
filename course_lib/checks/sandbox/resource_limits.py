"""What one answer may use: memory, processor time, processes, files. getrlimit(2)."""

import resource
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one answer may use.

    memory: bytes of one process, and of all of them together; seconds: of processor time, of one
    process; processes: threads included; disk: bytes of all files that it writes.
    """

    memory: int = 4 * 2**30
    seconds: int = 120
    processes: int = 600
    disk: int = 256 * 2**20


def set_limits(limits: Limits) -> None:
    """Let this process, and what it starts, use no more."""
    for what, most in (
        (resource.RLIMIT_DATA, limits.memory),
        (resource.RLIMIT_CPU, limits.seconds),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_FSIZE, limits.disk),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 1024),
    ):
        _, hard = resource.getrlimit(what)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(what, (most, most))
