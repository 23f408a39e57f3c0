"""Starting the program as a person would: torchrun, here with one agent or several on loopback."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def command(*arguments: str, nodes: int = 1, ranks: int = 1, port: int = 0) -> list[str]:
    """torchrun's command line; several nodes meet at `port`."""
    meeting = ["--standalone"]
    if nodes > 1:
        meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=test"]
        meeting += ["--local-addr=127.0.0.1"]
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *(f"--nnodes={nodes}", f"--nproc-per-node={ranks}", "--max-restarts=2", *meeting),
        *("-m", "course_lib.train", *arguments),
    ]


@contextmanager
def started(line: list[str], root: Path) -> Iterator[subprocess.Popen]:
    """The running program, with its output as text; ended, with its ranks, on leaving."""
    environ = dict(os.environ, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
    process = subprocess.Popen(
        line,
        cwd=root,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()  # the agent ends its ranks
        process.communicate(timeout=60)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
