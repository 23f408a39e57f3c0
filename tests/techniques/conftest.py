"""No technique may set off a warning: of all runs of these tests, none comes back with one."""

import importlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from course_lib.observe import RankWarning
from course_lib.ranks import RankResults

_run_ranks = importlib.import_module("course_lib.ranks.run_ranks")  # the module, not the function
# Runs that are not observed, since that takes time, are observed by `make faults`.
OBSERVE_ALL = bool(os.environ.get("FAULTS"))


@pytest.fixture(autouse=True)
def no_false_warning(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """A test of what is warned of says so itself: `@pytest.mark.warned`."""
    found: list[RankWarning] = []
    conclude = _run_ranks.conclude

    def look(*args: Any) -> RankResults:
        results = conclude(*args)
        found.extend(results.warnings)
        return results

    monkeypatch.setattr(_run_ranks, "conclude", look)
    if OBSERVE_ALL and hasattr(request.module, "collect"):
        monkeypatch.setattr(request.module, "collect", _observed)
    yield
    if not request.node.get_closest_marker("warned"):
        assert found == []


def _observed(*args: Any, **kwargs: Any) -> RankResults:
    kwargs["observe"] = kwargs.get("observe") or True
    return _run_ranks.collect(*args, **kwargs)
