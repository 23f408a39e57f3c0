"""What an exercise is: inputs, how an answer is run on a rank, and how what happened is judged.

The two halves never meet in one process when it counts. `on_rank` runs the learner's code, in rank
processes that are thrown away; it returns plain values. `judge` is a pure function of the case and
of what was observed, and runs where learner code never ran.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from course_lib.observe import RankWarning, Trace

from .contract import Contract


class Clue(str):
    """A likely cause that is also that of errors with one of some words, `Clue.raises`, in them."""

    raises: tuple[str, ...]

    def __new__(cls, text: str, *raises: str) -> "Clue":
        """`text`, and the words of errors that come of it: "IndexError", "view size"."""
        clue = super().__new__(cls, text)
        clue.raises = raises
        return clue


@dataclass(frozen=True)
class Case:
    """One run of the answer: `data` holds plain values and tensors, of all ranks together.

    label: what is run, as the learner reads it: "7 float32 values on 3 ranks".
    clue: the likely cause when the ranks are stuck in this very case ("" if it tests nothing
        special); a `Clue`, when they raise a certain error as well.
    """

    world_size: int
    label: str
    data: dict[str, Any]
    clue: str = ""


def innermost(case: Case) -> list[Case]:
    """The cases that somebody has put into the data of one; the case itself if there are none."""
    inside = [each for each in case.data.values() if isinstance(each, tuple)]
    cases = [each for group in inside for each in group if isinstance(each, Case)]
    return [inner for each in cases for inner in innermost(each)] or [case]


Own = Callable[[Any, Case, int], Any]
"""own(value, case, rank): of an entry of a case's data, what a rank gets (`checks.rank_inputs`)."""


@dataclass(frozen=True)
class Breach:
    """A law (`course_lib.checks.laws`) that an answer broke, in a sentence.

    rank: where; None if all of them together did.
    """

    rank: int | None
    sentence: str


@dataclass
class Observation:
    """What happened in one case: what each rank returned, what they communicated, what they broke.

    values: by rank. trace: only what belongs to this case.
    """

    values: list[Any]
    trace: Trace
    warnings: list[RankWarning] = field(default_factory=list)
    breaches: list[Breach] = field(default_factory=list)


@dataclass(frozen=True)
class Finding:
    """Why an answer is not right: the likely cause in one sentence, and the evidence, if any.

    promise: the result itself is right here; what is not kept is a promise about traffic, memory
    or state.
    special: the cause is what sets this case apart from those before, of which the advice in a
    report knows nothing.
    """

    likely: str
    rank: int | None = None
    input: str = ""
    expected: str = ""
    got: str = ""
    promise: bool = False
    special: bool = False


# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exercise:
    """An exercise of a notebook; the learner's function is found by `name`.

    An exercise is a module of `exercises`: its file has the name of the function that is asked, in
    the folder of the notebook (nb02_ring_all_reduce/ring_all_reduce.py). Nothing else names either.

    module: `__name__` there.
    signature: the arguments, as the learner is to write them: "(tensor, group=None)".
    cases: draws the cases; the same seed draws the same cases.
    on_rank: `on_rank(answer, case)` runs on each rank of `case.world_size`: builds this rank's
        input, calls the answer, returns plain values.
    judge: `judge(case, observation)` is None when the case is right. It sees runs that ended well;
        ranks that raised or hang, forbidden operations and warnings are found before it.
    hints: from a nudge to what is nearly the answer; indented text, shown without its indent.
    passed: the property that was shown, for the line after passing: "every rank sends exactly ..."
    own: which entries of a case's data are not for all ranks, and how they are cut up
        (`course_lib.checks.rank_inputs`). `on_rank` finds the shape there, and only its own
        numbers.
    groups: the groups of ranks that come up before the answer is known; `on_rank` gets them by
        `group_of` (`course_lib.checks.process_groups`).
    contract: what is promised besides the values (`course_lib.checks.contract`).
    observe: how the ranks are watched; "memory" also records what lies in memory.
    timeout: seconds for one case.
    """

    module: str
    signature: str
    cases: Callable[[random.Random], list[Case]]
    on_rank: Callable[[Callable, Case], Any]
    judge: Callable[[Case, Observation], Finding | None]
    hints: tuple[str, str, str]
    passed: str
    own: Mapping[str, Own] = field(default_factory=dict)
    groups: Callable[[Case], list[list[int]]] = field(default=lambda case: [])
    contract: Contract = field(default_factory=Contract)
    observe: bool | str = True
    points: int = 1
    timeout: float = 20.0

    @property
    def name(self) -> str:
        """The function that is asked: "ring_all_reduce"."""
        return self.module.rpartition(".")[2]

    @property
    def notebook(self) -> str:
        """The notebook that asks for it: "02_ring_all_reduce"."""
        folder = self.module.rpartition(".")[0].rpartition(".")[2]
        return folder.removeprefix("nb")

    def bare(self) -> "Exercise":
        """What ranks get of it: nothing that tells right from wrong."""
        contract = replace(self.contract, held=None)
        return replace(
            self, cases=_stays, judge=_stays, hints=("", "", ""), passed="", contract=contract
        )


def _stays(*_: object) -> NoReturn:
    raise NotImplementedError("cases are drawn and judged where no answer runs")
