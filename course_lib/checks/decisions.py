"""Decisions, judged: what was chosen must fit into memory, and be nearly the fastest that does.

A case's data holds the "job", plain numbers with its "memory" in bytes; "seconds", what a step
takes, by the ways to choose from; and "unseen", the mistakes that no case before it shows.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from .exercise import Case, Finding

Way = tuple
_CLOSE = 1.02
_MOST = 3  # causes that are named


@dataclass(frozen=True)
class Decision:
    """What one exercise asks to choose.

    held: bytes of states and of activations of a job with a way at the worst moment, counted with a
        mistake, or with "" as they are.
    mistakes: its words, by the names that `held` knows.
    parts: for a way and the best one, the words for each part of the way: with this part as it is,
        no other way is faster.
    shown: a way in words. device: what has the memory. digits: behind the point of GB.
    """

    held: Callable[[dict, Way, str], tuple[float, float]]
    mistakes: Mapping[str, str]
    parts: Callable[[Way, Way], list[str]]
    shown: Callable[[Way], str]
    device: str
    digits: int

    def in_turn(self, cases: Iterable[Case]) -> list[Case]:
        """The cases, each with what may be wrong with an answer that all before it let pass."""
        unseen, found = tuple(self.mistakes), []
        for case in cases:
            found.append(replace(case, data={**case.data, "unseen": unseen}))
            unseen = tuple(wrong for wrong in unseen if self._lets_pass(case, wrong))
        return found

    def _lets_pass(self, case: Case, wrong: str) -> bool:
        """Whether an answer with this mistake can be right here."""
        times, right, taken = case.data["seconds"], self.fitting(case), self.fitting(case, wrong)
        quickest = _fastest(case, taken)
        good = quickest <= _CLOSE * _fastest(case, right)
        return good and any(times[way] == quickest and way in right for way in taken)

    def fitting(self, case: Case, wrong: str = "") -> list[Way]:
        """The ways that fit into memory, as counted with a mistake."""
        job = case.data["job"]
        ways = case.data["seconds"]
        return [way for way in ways if sum(self.held(job, way, wrong)) <= job["memory"]]

    def judge(self, case: Case, way: Way) -> Finding | None:
        """What is wrong with a way that is one of those to choose from."""
        job, times = case.data["job"], case.data["seconds"]
        fitting = self.fitting(case)
        best = min(fitting, key=lambda each: times[each])
        if way not in fitting:
            states, activations = (f"{n / 1e9:.{self.digits}f}" for n in self.held(job, way, ""))
            return Finding(
                "; or ".join(self._likely(case, way)[:_MOST])
                or f"it does not fit into a {self.device}'s memory",
                input=case.label,
                expected=f"{job['memory'] / 1e9:.{self.digits}f} GB at most",
                got=f"{self.shown(way)}: {states} GB of states and {activations} GB of activations",
            )
        if times[way] <= _CLOSE * times[best]:
            return None
        causes = [*self._likely(case, way), *self._narrow(case, way, best)][:_MOST]
        return Finding(
            "; or ".join(causes) or "it fits, and others that fit are faster",
            input=case.label,
            expected=f"at most 2 % over {times[best]:.2f} s, as {self.shown(best)} takes",
            got=f"{self.shown(way)}: {times[way]:.2f} s",
        )

    def _likely(self, case: Case, way: Way) -> list[str]:
        """The mistakes with which this way would be the fastest that fits."""
        ways = {wrong: self.fitting(case, wrong) for wrong in case.data["unseen"]}
        time = case.data["seconds"][way]
        return [
            self.mistakes[wrong]
            for wrong, taken in ways.items()
            if way in taken and time == _fastest(case, taken)
        ]

    def _narrow(self, case: Case, way: Way, best: Way) -> list[str]:
        """Of which part of what fits this way is the fastest."""
        found = []
        for which, words in enumerate(self.parts(way, best)):
            same = [each for each in self.fitting(case) if each[which] == way[which]]
            if best[which] != way[which] and case.data["seconds"][way] == _fastest(case, same):
                found.append(words)
        return found


def _fastest(case: Case, ways: Iterable[Way]) -> float:
    return min((case.data["seconds"][way] for way in ways), default=0.0)
