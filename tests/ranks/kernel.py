"""A real Jupyter kernel for tests: run cells, interrupt, kill, see what a person would see."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty

import psutil
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).parents[2]
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class CellOutput:
    stdout: str = ""
    stderr: str = ""
    result: str = ""
    error: str = ""  # the exception's name, "" if the cell ran through
    traceback: str = ""
    displays: list[dict] = field(default_factory=list)


class Kernel:
    def __init__(self, **environ: str):
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=ROOT, env={**os.environ, **environ})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    @property
    def pid(self) -> int:
        return self.manager.provisioner.process.pid

    def start(self, code: str) -> str:
        return self.client.execute(code)

    def run(self, code: str, timeout: float = 60) -> CellOutput:
        return self.finish(self.start(code), timeout)

    def finish(self, message: str, timeout: float = 60) -> CellOutput:
        out = CellOutput()
        deadline = time.monotonic() + timeout
        while True:
            try:
                reply = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            except Empty:
                raise TimeoutError(
                    f"the cell did not finish in {timeout} s; so far {out}"
                ) from None
            if reply["parent_header"].get("msg_id") != message:
                continue
            kind, content = reply["msg_type"], reply["content"]
            if kind == "stream":
                setattr(out, content["name"], getattr(out, content["name"]) + content["text"])
            elif kind == "execute_result":
                out.result = content["data"]["text/plain"]
            elif kind in ("display_data", "update_display_data"):
                out.displays.append(content["data"])
            elif kind == "error":
                out.error = content["ename"]
                out.traceback = _ANSI.sub("", "\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle":
                return out

    def wait_for(self, message: str, text: str, timeout: float = 30) -> None:
        """Until the cell has printed `text` itself."""
        deadline = time.monotonic() + timeout
        seen = ""
        while text not in seen:
            reply = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            if reply["msg_type"] == "stream" and reply["parent_header"].get("msg_id") == message:
                seen += reply["content"]["text"]

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)

    def ranks(self) -> list[psutil.Process]:
        """Everything below the launcher process, the launcher itself left out."""
        return [
            p for launcher in psutil.Process(self.pid).children() for p in launcher.children(True)
        ]

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@contextmanager
def kernel(**environ: str) -> Iterator[Kernel]:
    running = Kernel(**environ)
    try:
        yield running
    finally:
        running.close()


def until(condition, timeout: float = 10) -> bool:
    """Poll something that has no event of its own, such as the process table."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
