"""Sizes that a function must refuse: a ValueError with both numbers, before anything is sent."""

from course_lib.checks.exercise import Case, Finding, Observation

BOTH_NUMBERS = "a ValueError helps only if it names both numbers"


def heads_refused(case: Case, observation: Observation, heads: int) -> Finding | None:
    """Why not all ranks refuse to share so many heads; None if they do.

    `observation.values` are {"refused": the text of the error}, for ranks that did.
    """
    n = case.world_size
    for rank, seen in enumerate(observation.values):
        if "refused" not in seen:
            return Finding(
                f"{heads} heads cannot be shared by {n} ranks: raise a ValueError before anything "
                "is sent",
                rank,
                expected="ValueError",
                got="a result",
            )
        if not (str(heads) in seen["refused"] and str(n) in seen["refused"]):
            return Finding(
                BOTH_NUMBERS,
                rank,
                expected=f"a message with {heads} and {n} in it",
                got=seen["refused"] or "an empty message",
            )
        if observation.trace.of(rank):
            return Finding("raise the ValueError before anything is sent", rank)
    return None
