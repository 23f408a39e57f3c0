"""Every worker is drawn twice, with its push and its pull, and with its neighbour in the ring."""

import re

import pytest

from course_lib.views.server_and_ring import LARGEST, server_and_ring
from tests.views.reading import boxes, words


@pytest.mark.parametrize("workers", [3, 4, LARGEST])
def test_each_worker_pushes_pulls_and_has_a_neighbour(workers):
    view = server_and_ring(workers)
    told = re.findall(r"<title>(.*?)</title>", view.svg())
    for worker in range(workers):
        assert told.count(f"worker {worker} pushes its gradient") == 1
        assert told.count(f"worker {worker} pulls the parameters") == 1
        other = (worker + 1) % workers
        assert told.count(f"worker {worker} sends to worker {other}") == 1
        assert f"worker {worker} to worker {other}" in view.text
        assert words(view).count(f"worker {worker}") == 2


@pytest.mark.parametrize("workers", [3, 4, LARGEST])
def test_no_box_covers_another(workers):
    places = [box for box in boxes(server_and_ring(workers)) if box.key != "copy"]
    for n, one in enumerate(places):
        for other in places[n + 1 :]:
            beside = one.right <= other.x or other.right <= one.x
            assert beside or one.y + one.high <= other.y or other.y + other.high <= one.y


@pytest.mark.parametrize("workers", [2, LARGEST + 1])
def test_what_cannot_be_drawn_is_refused(workers):
    with pytest.raises(ValueError, match=f"3 to {LARGEST} workers, not {workers}"):
        server_and_ring(workers)
