"""One bar for each rank and run, as high as what the rank sent."""

from types import SimpleNamespace

import pytest

from course_lib.views.traffic_bars import traffic_bars
from tests.views.reading import boxes, keys, words

RUNS = {
    "through rank 0": SimpleNamespace(sent=[12_000, 4_000, 4_000, 4_000]),
    "ring": SimpleNamespace(sent=[6_000, 6_000, 6_000, 6_000]),
}


def heights(view):
    """Of every bar, run by run."""
    return [[box.high for box in boxes(view, name)] for name in RUNS]


def test_bars_count_tensors():
    view = traffic_bars(RUNS, per_tensor=4_000)
    (high, *low), ring = heights(view)
    assert low == pytest.approx([high / 3] * 3, rel=0.001)
    assert ring == pytest.approx([high / 2] * 4, rel=0.001)
    header, naive, ring = view.text.splitlines()
    assert header.split()[:2] == ["tensors", "sent"]
    assert naive.split()[-4:] == ["3", "1", "1", "1"]
    assert ring.split()[-4:] == ["1.5"] * 4
    assert view.picture.title == "through rank 0: rank 0 sends most, 3 tensors"


def test_what_is_counted_and_who_a_rank_is_can_have_names():
    view = traffic_bars(RUNS, per_tensor=4_000, unit="models", ranks={0: "the server"})
    assert view.picture.title == "through rank 0: the server sends most, 3 models"
    assert {"models sent", "the server", "rank 1"} < {*words(view)}
    header, naive, _ = view.text.splitlines()
    assert " ".join(header.split()) == "models sent the server rank 1 rank 2 rank 3"
    assert header.index("the server") + len("the server") == naive.index("3") + 1
    with pytest.raises(ValueError, match="rank 4 has a name, and there are 4 ranks"):
        traffic_bars(RUNS, ranks={4: "the server"})


def test_bars_count_bytes_without_a_tensor_to_count_by():
    view = traffic_bars(RUNS)
    assert boxes(view)[0].hint == "through rank 0, rank 0: 12 kB"
    assert {"12 kB", "4 kB", "rank 3", "bytes sent"} < {*words(view)}
    assert keys(view) == [*RUNS]


def test_more_runs_than_can_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="1 to 4 runs can be told apart, not 5"):
        traffic_bars({str(k): RUNS["ring"] for k in range(5)})
