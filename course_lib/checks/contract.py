"""What an exercise promises, as data: stated once, shown in the lesson, and kept by laws.

A contract says in which memory the result lies, which arguments may change, which tensors and
groups may come, what may be sent and held. A learner reads `Contract.arguments`, `Contract.text`,
to which `course_lib.checks.laws` hold every answer, and `Contract.freedom`. What `GENERAL` says is
asked everywhere, and needs no word in a contract.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from course_lib.text import listed

POINT_TO_POINT = frozenset({"send", "recv"})
"""For `Contract.allowed`: what is left when the collectives are what is to be written."""

GENERAL = (
    "Unless an exercise says otherwise, your function leaves its arguments and the global states "
    "of random generators as they were, can be called again with other sizes, keeps nothing from "
    "one call to the next, runs no forward pass twice, sends nothing that its result does not "
    "need, and goes by no hash() and no order of a set, which differ between processes. A model "
    "that it may change keeps its parameters where they are in memory."
)
_AGREE = (
    "every rank has to come to the same result by itself: hash() of a text and the order of a set "
    "differ between processes, so go by a list, a dict or sorted()"
)


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Who waits where for messages of one kind, and what goes on meanwhile.

    What goes on has labels in the record, which the exercise puts there (`checks.profiler_labels`);
    `laws.overlap` compares the order, never how long anything took.

    op: which messages, as in `CommEvent.op`: "all_reduce".
    begins: each is issued while this runs: "backward".
    promptly: and as soon as all that it carries is ready and those before it have left.
    outlasts: nobody waits inside of this for one that was issued there: "backward", "gather".
    reaches: nobody waits for one before the next of these begins: "pass".
    during: what runs while one of them is under way, in words, as a clause of its own.
    """

    op: str
    begins: str = ""
    promptly: bool = False
    outlasts: str = ""
    reaches: str = ""
    during: str = ""

    @property
    def text(self) -> str:
        soon = ", as soon as what it carries is ready and those before it have left"
        parts = [
            f"each {self.op} begins in {self.begins}{soon if self.promptly else ''}"
            if self.begins
            else "",
            f"no {self.op} is waited for inside {self.outlasts}" if self.outlasts else "",
            f"no {self.op} is waited for before the next {self.reaches}" if self.reaches else "",
            self.during,
        ]
        return "; ".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What is promised. All fields are optional; what is not named is not asked, or is `GENERAL`.

    in_place: the argument whose own memory holds the result afterwards, a tensor or a list of them.
        It may be a view of a larger one, the rest of which stays as it is.
    returned: whether that argument is returned as well; or in words what is, in its place.
    changes: further arguments that may be written to, as a model that is trained.
    moves: arguments whose tensors may come to lie in other memory (a layer that is cut up).
    anew: whether what is returned is in memory of its own.
    detached: whether it is to require no grad.
    takes: which arguments may come, as a list in words: "any shape; numel a multiple of n".
    gives: what is returned or left behind, as a clause of its own.
    dtypes: those of its tensors, as torch calls them.
    transposed: whether tensors of two dimensions and more may come transposed, not contiguous.
    groups: whether it may be called with a group of some of the ranks.
    allowed: the operations that may be used (names as in `CommEvent.op`); None allows all.
    sends: which bytes, messages and peers, as a clause of its own; the numbers are the judge's.
    holds: what may be held in memory, and when, as a clause of its own.
    waits: when messages leave, and what goes on before anybody waits for them (`laws.overlap`).
    any_order: whether the order of what is returned is free.
    agree: whether each rank works out by itself what has to be the same on all.
    runs: how often each module that is passed in, by itself or in a list, runs forward in a call,
        by the arguments; None where that is free (`laws.runs_once`).
    causal: whether every message must make a difference to some result
        (`laws.messages_change_results`).
    held: the bytes that may live between calls, made by the answer, by case and rank
        (`laws.held_between_calls`).
    separate: whether a right result is work of its own, so that it earns a share of the points
        where more was sent than may be, or a law was broken (`examine.has_right_result`).
    may: what may be left behind, of "hooks" (on its arguments), "threads", "files" and "random"
        (the state of the generators).
    """

    in_place: str = ""
    returned: bool | str = True
    changes: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    anew: bool = False
    detached: bool = False
    takes: str = ""
    gives: str = ""
    dtypes: tuple[str, ...] = ()
    transposed: bool = False
    groups: bool = False
    allowed: frozenset[str] | None = None
    sends: str = ""
    holds: str = ""
    waits: tuple[Waits, ...] = ()
    any_order: bool = False
    agree: bool = False
    runs: Callable[[Mapping[str, Any]], int] | None = None
    causal: bool = True
    held: Callable[[Any, int], int] | None = None
    separate: bool = False
    may: frozenset[str] = frozenset()

    @property
    def arguments(self) -> str:
        """Which arguments the function has to be right for, as a list."""
        parts = [
            self.takes,
            "also transposed" if self.transposed else "",
            listed(self.dtypes) if self.dtypes else "",
            "any group of ranks" if self.groups else "",
        ]
        return _sentences("; ".join(part for part in parts if part))

    @property
    def text(self) -> str:
        """What is enforced besides `GENERAL`, a line or two under the statement of the exercise."""
        waits = (each.text for each in self.waits)
        agree = _AGREE if self.agree else ""
        messages = (self._operations(), self.sends)
        return _sentences(self._result(), self.gives, *messages, self.holds, *waits, agree)

    @property
    def freedom(self) -> str:
        """What is allowed, where `GENERAL` or habit would say otherwise."""
        changed = listed(f"`{name}`" for name in self.changes) if self.changes else ""
        return _sentences(
            f"your function may change {changed}" if changed else "",
            "the order of what it returns is free" if self.any_order else "",
        )

    def _result(self) -> str:
        if self.in_place:
            returned = f", and {self.returned or 'nothing'} is returned"
            if self.returned is True:
                returned = " and is returned"
            return f"in place: `{self.in_place}` itself holds the result{returned}"
        parts = [
            "the result is new, in memory of its own" if self.anew else "",
            "the result requires no grad" if self.detached else "",
        ]
        return "; ".join(part for part in parts if part)

    def _operations(self) -> str:
        if not self.allowed:  # all, or none, where nobody would think of any
            return ""
        if self.allowed == POINT_TO_POINT:
            return "only send and recv, blocking or not, may be used"
        return f"only {listed(sorted(self.allowed, reverse=True))} may be used"


def _sentences(*parts: str) -> str:
    return " ".join(_sentence(part) for part in parts if part)


def _sentence(part: str) -> str:
    """With a capital, unless it begins with a name of the code or a symbol, and one full stop."""
    word = part.split()[0].rstrip(",;:")
    symbol = (len(word) == 1 and word != "a") or "_" in word
    begin = part if symbol else part[0].upper() + part[1:]
    return begin if begin.endswith(".") else f"{begin}."
