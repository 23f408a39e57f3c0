"""What runs in the sandbox: define the answer, run it case by case, send each outcome out."""

import os
import pickle
from dataclasses import dataclass
from typing import BinaryIO

from course_lib.checks.collecting import Outcome, Trouble, collect_case
from course_lib.checks.exercise import Case, Exercise

from . import transport
from .program import Program, Undefined, define

DEFINED = b"defined"


@dataclass(frozen=True)
class Task:
    """An exercise without its judge, the answer as text, and the cases to run it on."""

    exercise: Exercise
    program: Program
    cases: tuple[Case, ...]


def run(payload: bytes, results: int) -> None:
    """Run the pickled `Task`; each message into the pipe `results` is its length and itself.

    The first is `DEFINED`, the others are the outcomes of the cases, in order.
    """
    task: Task = pickle.loads(payload)
    with os.fdopen(results, "wb", buffering=0) as pipe:
        try:
            answer = define(task.program)
        except Undefined as problem:
            outcomes = iter([Outcome(trouble=Trouble("signature", str(problem)))])
        else:
            outcomes = (collect_case(task.exercise, answer, case) for case in task.cases)
        _send(pipe, DEFINED)
        for outcome in outcomes:
            _send(pipe, transport.dump(outcome))


def _send(pipe: BinaryIO, message: bytes) -> None:
    view = memoryview(len(message).to_bytes(8, "big") + message)
    while view:
        view = view[pipe.write(view) :]
