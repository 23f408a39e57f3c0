"""What happens to one rank of a program, at one of its calls."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch.distributed as dist

from course_lib.observe import recorder
from course_lib.observe.frames import Frame, look
from tests.faults.programs import PROGRAMS

LATE = 0.05  # seconds
Calls = list[tuple[Frame, ...]]


def run(
    name: str, fault: str = "", victim: int = 0, at: int = -1, told: str = ""
) -> tuple[float, Calls]:
    """Run a program, and let `fault` happen at call number `at` of rank `victim`.

    told: a file that is there when a rank stalls. Returns what the program computes, and of all
    calls the lines that they come from. With the fault "late" each call of the victim is late.
    """
    calls: Calls = []
    communicate = recorder.Recorder._communicate

    def faulty(self, call, carry_out):
        calls.append(look(sys._getframe(1)).where)
        if dist.get_rank() == victim:
            if fault == "late":
                time.sleep(LATE)
            elif len(calls) - 1 == at:
                happen(fault, told)
        return communicate(self, call, carry_out)

    recorder.Recorder._communicate = faulty
    program, _ = PROGRAMS[name]
    return program(), calls


def happen(fault: str, told: str) -> None:
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "raised":
        raise ValueError("injected")  # a RuntimeError is what gloo raises for a lost peer
    elif fault == "stalled":
        Path(told).touch()
        threading.Event().wait()
