"""A verdict names one rank; what it shows of the others that are wrong."""

from types import SimpleNamespace

import torch

from course_lib.checks.compare_tensors import mismatch, survey
from course_lib.checks.exercise import Finding
from course_lib.checks.reference import Reference
from course_lib.checks.verdict import Failure, Verdict

GOT = (torch.ones(2), torch.zeros(2), torch.full((2,), 3.0))


def judge(case: object, observation: object) -> Finding | None:
    """The first rank that does not hold ones; then one more complaint."""
    exact = torch.ones(2, dtype=torch.float64)
    want = Reference(exact, torch.zeros_like(exact), torch.float32)
    for rank, got in enumerate(GOT):
        if finding := mismatch(got, want, rank):
            return finding
    return Finding("too much was sent", rank=0)


def verdict(finding: Finding) -> Verdict:
    exercise = SimpleNamespace(judge=judge)
    return Verdict(exercise, [], Failure(None, finding, None, observation=SimpleNamespace()))


def test_a_survey_goes_on_past_the_first_wrong_rank():
    assert judge(None, None).rank == 1
    assert survey(lambda: judge(None, None)) == {1: ("[1, 1]", "[0, 0]"), 2: ("[1, 1]", "[3, 3]")}
    assert judge(None, None).rank == 1  # and afterwards all is as before


def test_a_verdict_has_the_others_if_its_finding_is_of_their_kind():
    assert list(verdict(judge(None, None)).by_rank()) == [1, 2]
    assert verdict(Finding("too much was sent", rank=0)).by_rank() == {}
    assert verdict(Finding("nothing to compare")).by_rank() == {}
