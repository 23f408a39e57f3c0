"""Seconds of steps that are compared with each other."""

import time
from collections.abc import Callable, Mapping

_WARM_UP = 2  # rounds that are not counted


def in_turns(
    steps: Mapping[str, Callable[[], object]],
    rounds: int = 10,
    ready: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds of every step in every round, {name: [one per round]}.

    The steps take turns, so that whatever disturbs the machine meets all of them alike. `ready` is
    called before each one and not timed: a barrier, where several ranks are to start together.
    """
    if rounds < 1:
        raise ValueError(f"rounds = {rounds}, at least 1")
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + _WARM_UP):
        for name, step in steps.items():
            ready()
            began = time.perf_counter()
            step()
            if number >= _WARM_UP:
                seconds[name].append(time.perf_counter() - began)
    return seconds
