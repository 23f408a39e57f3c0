"""On a rank: run an answer case by case, with the laws around every call of it."""

import functools
import inspect
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.observe.frames import is_learners

from . import process_groups
from .exercise import Case, Exercise
from .laws._law import Call, Law, Watch

SPAN = "check: case {}"  # around everything that belongs to a case
_MADE = 300  # objects, of which two thirds leave holes
_LOOKED_AT = 40  # calls of a case; some exercises play ten thousand rounds


@dataclass(frozen=True)
class Seen:
    """What one rank saw of one case: what `on_rank` returned, and the laws that were broken."""

    value: Any
    breaches: list[str]


class Unusable(Exception):
    """What the answer returned cannot be used as the exercise says: the check's line raised."""


def run_cases(
    exercise: Exercise,
    answer: Callable,
    laws: Sequence[Law],
    calls_before: int,
    cases: Sequence[Case],
) -> list[Seen]:
    """Run the answer on all cases, one after the other in this process."""
    process_groups.open_all(
        exercise, cases
    )  # an answer that counts finds no network to make its own in
    # Torch warns of names that it will change some day, on every rank, among what was printed.
    warnings.simplefilter("ignore", FutureWarning)
    if define := getattr(answer, "define", None):  # one that is still text, in a sandbox
        answer = define()
    holes = _scattered_memory(dist.get_rank())
    watched = _Watched(exercise, answer, laws, calls=calls_before)
    values = []
    for index, case in enumerate(cases):
        if index:
            dist.barrier()  # a message from anybody must not be one of the next case
        with record_function(SPAN.format(index)):
            watched.case = index
            values.append(_run(exercise, watched, case))
            watched.end_of_case()
    watched.end()
    del holes
    return [Seen(value, watched.broken.get(i, [])) for i, value in enumerate(values)]


def _scattered_memory(rank: int) -> list[nn.Parameter]:
    """What makes objects that come next lie in another order on every rank, while it is kept.

    A set of tensors goes by their addresses. Ranks that were forked from one process have all of
    them at the same ones, so that its order would be the same here, and nowhere else.
    """
    made = [nn.Parameter(torch.empty(0)) for _ in range(_MADE)]
    random.Random(rank).shuffle(made)
    return made[: _MADE // 3]


def _run(exercise: Exercise, watched: "_Watched", case: Case) -> Any:
    try:
        return exercise.on_rank(watched, case)
    except Exception as problem:
        if not watched.returned_from or _in_answer(problem):
            raise
        # The check's own line stumbled over what the answer returned: nobody wants to read that.
        raise Unusable(f"{type(problem).__name__}: {problem}") from None


def _in_answer(problem: BaseException) -> bool:
    step = problem.__traceback__
    while step:
        if is_learners(step.tb_frame.f_code.co_filename):
            return True
        step = step.tb_next
    return False


@dataclass
class _Life:
    """A law's look at one call, which goes on after it."""

    case: int
    watch: Watch
    over: bool = False


@dataclass
class _Watched:
    """The answer, as the exercise calls it; the laws look at each call."""

    exercise: Exercise
    answer: Callable
    laws: Sequence[Law]
    case: int = 0
    broken: dict[int, list[str]] = field(default_factory=dict)
    returned_from: int = 0
    calls: int = 0
    _of_case: int = 0
    _results: list[Any] = field(default_factory=list)
    _notes: dict[Any, Any] = field(default_factory=dict)
    _lives: list[_Life] = field(default_factory=list)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = list(asked_signature(self.exercise).parameters)[: len(args)]
        arguments = dict(zip(names, args, strict=True)) | kwargs

        def carry_out() -> Any:
            given = [arguments[name] for name in names]
            return self.answer(*given, **{name: arguments[name] for name in kwargs})

        call = Call(
            arguments,
            self.exercise.contract,
            self.calls,
            carry_out,
            self.answer,
            earlier=tuple(self._results),
            notes=self._notes,
        )
        self.calls += 1
        self._of_case += 1
        laws = self.laws if self._of_case <= _LOOKED_AT else ()
        lives = [_Life(self.case, law.watch(call)) for law in laws if law.watch]
        for life in lives:
            self._go_on(life)
        call.returned = carry_out()
        self.returned_from += 1
        if lives:
            self._results.append(call.returned)
        for life in reversed(lives):
            self._go_on(life)
        self._lives += lives
        return call.returned

    def end_of_case(self) -> None:
        self._of_case = 0
        for life in self._lives:
            if life.case == self.case:
                self._go_on(life)

    def end(self) -> None:
        for life in self._lives:
            self._go_on(life)

    def _go_on(self, life: _Life) -> None:
        if life.over:
            return
        try:
            next(life.watch)
        except StopIteration as end:
            life.over = True
            if end.value:
                self.broken.setdefault(life.case, []).append(end.value)


def asked_signature(exercise: Exercise) -> inspect.Signature:
    """The arguments that the exercise asks for."""
    return _parsed(exercise.signature)


@functools.cache
def _parsed(signature: str) -> inspect.Signature:
    names: dict[str, Any] = {}
    exec(f"def stub{signature}: ...", names)
    return inspect.signature(names["stub"])
