"""What runs in the sandbox: run the answer job by job on ranks, send each outcome out.

No line of the answer runs in this process, nor in the one that starts the ranks: the answer is text
until a rank defines it. What ranks leave is read as data, and may be anything.
"""

import functools
import inspect
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from course_lib.checks.run_answer import Job, Outcome, Trouble, collect_job
from course_lib.ranks import RankError, collect

from . import loopback_traffic, rank_confinement, safe_serialization
from .answer_program import Program, Undefined, define, keep_lines

DEFINED = b"defined"
_LONGER_THAN_THE_GRADER_WAITS = 3600.0


@dataclass(frozen=True)
class Task:
    """The answer as text, and the jobs to run it on, without what judges them."""

    program: Program
    jobs: tuple[Job, ...]


def run(order: int, results: int) -> None:
    """Run the pickled `Task` in the file `order`; messages go into the pipe `results`.

    Each is its length and itself. The first is `DEFINED`, the others are the outcomes of the jobs,
    in order. Raises where ranks cannot be started at all, before any has seen the answer.
    """
    with os.fdopen(order, "rb") as file:
        task: Task = pickle.load(file)
    with os.fdopen(results, "wb", buffering=0) as pipe:
        for message in _messages(task):
            _send(pipe, message)


def _messages(task: Task) -> Iterator[bytes]:
    collect(_nothing, 1, observe=False, device="cpu")
    keep_lines(task.program)
    answer = _defined(task.program)
    yield DEFINED
    if isinstance(answer, Outcome):
        yield safe_serialization.dump(answer)
        return
    for job in task.jobs:
        yield safe_serialization.dump(_outcome(answer, job))


def _outcome(answer: "Answer", job: Job) -> Outcome:
    before = loopback_traffic.counted()
    try:
        outcome = collect_job(answer, job)
        outcome.crossed = loopback_traffic.counted() - before
        return outcome
    except Exception as problem:  # ranks may have left anything, where they can write
        return _failed(f"What your ranks left cannot be read: {type(problem).__name__}: {problem}")


def _failed(report: str) -> Outcome:
    return Outcome(trouble=Trouble("failed", report))


def _send(pipe: BinaryIO, message: bytes) -> None:
    view = memoryview(len(message).to_bytes(8, "big") + message)
    while view:
        view = view[pipe.write(view) :]


# ---------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """The function that a program defines, on the rank that calls it; elsewhere its signature."""

    program: Program
    __signature__: inspect.Signature = field(default_factory=inspect.Signature)

    def define(self) -> Callable:
        """Run the program's cells, which is no part of a call. From here on the rank is alone."""
        rank_confinement.seal()
        return _definition(self.program)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _definition(self.program)(*args, **kwargs)


@functools.cache
def _definition(program: Program) -> Any:
    return define(program)


def _defined(program: Program) -> Answer | Outcome:
    """The answer, or why there is none: its definition is tried on one rank."""
    try:
        (told,) = collect(
            _described,
            1,
            (program,),
            timeout=_LONGER_THAN_THE_GRADER_WAITS,
            observe=False,
            device="cpu",
        )
        if isinstance(told, str):
            return Outcome(trouble=Trouble("signature", told))
        return Answer(program, _signature(told))
    except RankError as error:
        what = next((failure.what for failure in error.failures.values()), "ended its process")
        return Outcome(trouble=Trouble("signature", f"its cell {what}"))
    except Exception as problem:
        why = f"its cell left something that cannot be read: {type(problem).__name__}"
        return Outcome(trouble=Trouble("signature", why))


def _nothing() -> None:
    """Shows that ranks can be started."""


def _described(program: Program) -> str | list[tuple[str, int, str | None]] | None:
    """On a rank: the parameters of the function, None if they are not to be had, or why not."""
    rank_confinement.seal()
    try:
        parameters = inspect.signature(define(program)).parameters.values()
    except Undefined as problem:
        return str(problem)
    except (TypeError, ValueError):
        return None
    return [
        (p.name, int(p.kind), None if p.default is p.empty else f"{p.default!r}")
        for p in parameters
    ]


# By their number, which stands in what a rank tells.
_KINDS = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_KEYWORD,
)


def _signature(told: Any) -> inspect.Signature:
    """As described; one that takes everything where there is no description."""
    if not isinstance(told, list):
        told = [("args", 2, None), ("kwargs", 4, None)]
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                _KINDS[kind],
                default=inspect.Parameter.empty if default is None else _Shown(default),
            )
            for name, kind, default in told
        ]
    )


@dataclass(frozen=True, repr=False)
class _Shown:
    """A default of which only the text is known."""

    text: str

    def __repr__(self) -> str:
        return self.text
