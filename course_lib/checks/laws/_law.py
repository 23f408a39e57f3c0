"""What a law is, and the call that it looks at."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Breach, Case, Exercise, Finding, Observation

Watch = Generator[None, None, str | None]
"""Notes, `yield`, looks; the string that it returns says what is wrong."""


@dataclass
class Call:
    """One call of an answer, while it is under way.

    arguments: by name; a law may put others in their place before the call.
    returned: what came, from the first `yield` on.
    number: how many calls this process had seen before.
    answer: the function itself, to be looked at and not to be called.
    earlier: what the calls before returned.
    again: calls the answer once more, with the arguments as they are now, and no law around it.
    notes: what laws note for the calls that come after it in this process.
    """

    arguments: dict[str, Any]
    contract: Contract
    number: int
    again: Callable[[], Any]
    answer: Callable
    returned: Any = None
    earlier: Sequence[Any] = ()
    notes: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Law:
    """Something that all answers to some exercises must hold.

    watch: looks at each call on its rank (see the package).
    judge: looks at what was recorded of each case, once its values are right.
    variations: exercises to be passed besides, made of one to which the law applies.
    applies: to which contracts; to all by default.
    may_fail: whether ranks that come to no result in a variation have passed it.
    fresh: whether one rank of its variations is a Python of its own (`ranks.run_ranks.collect`),
        which takes a second or two: they are run only for answers that go by hashes
        (`course_lib.checks.hash_order_dependence`).
    because: what it shows if a variation fails.
    essential: whether whoever breaks it has no result of its own, however right the values.
    order: laws of a smaller number stand further out.
    """

    watch: Callable[[Call], Watch] | None = None
    judge: Callable[[Contract, Case, Observation], Finding | None] | None = None
    variations: Callable[[Exercise], list[Exercise]] | None = None
    applies: Callable[[Contract], bool] = field(default=lambda contract: True)
    order: int = 0
    may_fail: bool = False
    fresh: bool = False
    because: str = ""
    essential: bool = False

    def bare(self) -> "Law":
        """What ranks get of it: nothing that tells right from wrong."""
        return replace(self, judge=None, variations=None)


__all__ = ["Breach", "Call", "Law", "Watch"]
