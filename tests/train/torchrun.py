"""Starting the program as a person would: by torchrun, one agent for each node, on loopback."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil


@contextmanager
def torchrun(
    arguments: list[str], root: Path, *, nodes: int, ranks: int
) -> Iterator[tuple[IO[str], list[subprocess.Popen]]]:
    """What all ranks print, line by line, and the agents; they are ended on leaving.

    ranks: on each node.
    """
    port = _free_port()
    line = [
        *(sys.executable, "-m", "torch.distributed.run"),
        *(f"--nnodes={nodes}", f"--nproc-per-node={ranks}", "--max-restarts=2"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=test"),
        *("--local-addr=127.0.0.1", "-m", "course_lib.train", *arguments),
    ]
    environ = dict(os.environ, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # see course_lib.train.loop
    read, write = os.pipe()
    agents = [
        subprocess.Popen(line, cwd=root, env=environ, stdout=write, stderr=write)
        for _ in range(nodes)
    ]
    os.close(write)
    try:
        with open(read, encoding="utf-8") as output:
            yield output, agents
    finally:
        ranks_left = [rank for agent in agents for rank in ranks_of(agent)]
        for agent in agents:
            agent.kill()
            agent.wait(60)
        for rank in ranks_left:
            rank.kill()


def ranks_of(agent: subprocess.Popen) -> list[psutil.Process]:
    """The training processes that an agent has started."""
    try:
        return psutil.Process(agent.pid).children()
    except psutil.NoSuchProcess:
        return []


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
