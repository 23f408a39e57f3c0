"""Known answers on many draws of the cases: right ones must pass on each, wrong ones on none.

    python -m tests.checks.many_draws --draws 8 balancing_loss route_tokens

A check draws its cases once. Whether one draw in a hundred refuses a right answer, or lets a wrong
one pass, is seen on many. Most of what a check costs is to start ranks, so all draws go through the
same ones; where that ends otherwise than expected, draws are tried alone.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence

from course_lib.checks import seeds
from course_lib.checks.check_in_kernel import run_briefly
from course_lib.checks.examine import variations
from course_lib.checks.exercise import Exercise
from course_lib.checks.judging import judge_case
from course_lib.checks.known_answers import KnownAnswer, known_answers
from course_lib.checks.laws import all_laws
from course_lib.checks.registry import all_exercises
from course_lib.checks.run_answer import Job, collect_job
from course_lib.checks.shared_launches import Launch, launches

_SECONDS = 100.0  # for all draws together
_ALONE = 3  # wrong answers that end their ranks are tried on so many draws


def passing(exercise: Exercise, known: KnownAnswer, draws: Sequence[int]) -> dict[int, bool]:
    """Whether the answer passes, by draw, as far as it was tried."""
    rngs = {draw: random_of(exercise, draw) for draw in draws}
    passed = _passed_cases(exercise, known, rngs)
    if passed is not None and not known.right:
        found = dict.fromkeys(draws, False)
        return found | {draw: _passes_alone(exercise, known, draw) for draw in passed}
    if passed == set(draws) and _passes_variations(exercise, known, list(rngs.values())):
        return dict.fromkeys(draws, True)
    few = draws if known.right else draws[:_ALONE]
    return {draw: _passes_alone(exercise, known, draw) for draw in few}


def random_of(exercise: Exercise, draw: int) -> random.Random:
    return seeds.hidden(exercise.name, f"draw {draw}")


def _passed_cases(
    exercise: Exercise, known: KnownAnswer, rngs: dict[int, random.Random]
) -> set[int] | None:
    """The draws whose cases are all right, few ranks first; None if ranks came to no result."""
    cases = [
        (draw, case) for draw, rng in rngs.items() for _ in range(2) for case in exercise.cases(rng)
    ]
    laws = tuple(law for law in all_laws() if law.applies(exercise.contract))
    passed = set(rngs)
    for size in sorted({case.world_size for _, case in cases}):
        those = [(d, case) for d, case in cases if case.world_size == size and d in passed]
        if not those:
            break
        job = Job(exercise, tuple(case for _, case in those), laws)
        outcome = collect_job(known.answer, job, _SECONDS)
        if outcome.trouble:
            return None
        for (draw, case), seen in zip(those, outcome.observations, strict=True):
            if judge_case(exercise, case, seen, laws):
                passed.discard(draw)
    return passed


def _passes_variations(
    exercise: Exercise, known: KnownAnswer, rngs: Sequence[random.Random]
) -> bool:
    jobs = [job for rng in rngs for job in variations(exercise, rng, all_laws(), "")]
    return all(_passes_launch(known, launch) for launch in launches(jobs))


def _passes_launch(known: KnownAnswer, launch: Launch) -> bool:
    job, outcome = launch.job, collect_job(known.answer, launch.job, _SECONDS)
    if outcome.trouble:
        return job.may_fail and all(_passes_launch(known, Launch(each)) for each in launch.apart)
    return judge_case(job.exercise, job.cases[0], outcome.observations[0]) is None


def _passes_alone(exercise: Exercise, known: KnownAnswer, draw: int) -> bool:
    verdict = run_briefly(exercise, known.answer, random_of(exercise, draw))
    if verdict.passed != known.right:
        kind = "right and refused" if known.right else "wrong and passed"
        print(f"{exercise.name}.{known.name} on draw {draw}: {kind}\n{verdict}", flush=True)
    return verdict.passed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.checks.many_draws", description=__doc__)
    parser.add_argument("exercise", nargs="*", help="only these exercises (all by default)")
    parser.add_argument("--draws", type=int, default=8, help="of the cases of each exercise")
    parser.add_argument("--kind", choices=("right", "wrong"), help="only these answers")
    options = parser.parse_args(arguments)
    exercises, count = all_exercises(), Counter[str]()
    for name in options.exercise or exercises:
        for known in known_answers(exercises[name]):
            kind = "right" if known.right else "wrong"
            if options.kind in (None, kind):
                passed = passing(exercises[name], known, range(options.draws))
                count[kind] += 1
                count[f"{kind} draws"] += len(passed)
                count["unexpected"] += sum(each != known.right for each in passed.values())
        print(name, dict(count), flush=True)
    return int(count["unexpected"] > 0)


if __name__ == "__main__":
    sys.exit(main())
