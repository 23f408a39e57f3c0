"""What the grader says of attacks on the exercise `exchange`, a few of them at a time."""

import concurrent.futures
import random
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.examine import examine_briefly
from course_lib.checks.sandbox import grader
from course_lib.checks.sandbox.answer_program import Piece, Program
from course_lib.checks.sandbox.grader import Grader
from course_lib.checks.sandbox.resource_limits import Limits
from course_lib.checks.verdict import Verdict
from tests.classroom import tiny

# An answer that asks `past(tensor, me, other)` for the other's tensor. What it sends says
# something of its own, which is taken out of the result again. No law of the messages can tell it
# from an honest answer: what it knows, it must not be able to know.
CANCELLED = """
def exchange(tensor):
    me, other = dist.get_rank(), 1 - dist.get_rank()
    theirs = past(tensor, me, other)
    heard = torch.empty_like(tensor)
    sending = dist.isend(torch.floor(tensor * 1000), dst=other)
    dist.recv(heard, src=other)
    sending.wait()
    return theirs + (heard - torch.floor(theirs * 1000))
"""
_AT_ONCE = 8  # most of them wait
_IMPORTS = "import torch\nimport torch.distributed as dist"


def verdicts_on(attacks: Mapping[str, str]) -> dict[str, Verdict]:
    """Name -> verdict, and that of the "honest" answer after all of them."""
    only_messages = Contract(allowed=POINT_TO_POINT, separate=True)
    exercise = replace(tiny.EXERCISES["exchange"], contract=only_messages)
    limits = Limits(memory=2**30, seconds=20, processes=150, disk=2**26)
    with pytest.MonkeyPatch.context() as patch, Grader(limits) as sandboxes:
        if not sandboxes.isolated:
            pytest.skip("this system has no namespaces to give")
        patch.setattr(grader, "_DEFINE_SECONDS", 6.0)
        patch.setattr(grader, "_MORE_SECONDS", 8.0)
        patch.setattr(grader, "examine", examine_briefly)  # whose story it is nobody asks here

        def take(code: str) -> Verdict:
            pieces = (Piece("/lesson/lesson.py", _IMPORTS), Piece("/answers/x/exchange.py", code))
            program = Program("exchange", pieces)
            return sandboxes.verdict(exercise, program, random.Random(time.time()), [_IMPORTS])

        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            taken = dict(zip(attacks, pool.map(take, attacks.values()), strict=True))
        return taken | {"honest": take(tiny.ANSWERS["exchange"])}


def require_nothing_gained(verdict: Verdict) -> None:
    """No points, no share of them, and a reason that can be read."""
    assert not verdict.passed
    assert not verdict.right_result
    assert len(str(verdict).splitlines()) > 1
