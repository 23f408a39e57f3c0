"""The Chrome trace format: read back by a parser that knows the rules of the format."""

import json
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch.profiler import record_function

from course_lib.observe import Trace
from course_lib.ranks import collect


def around():
    rank, n = dist.get_rank(), dist.get_world_size()
    out, room = torch.ones(1000), torch.empty(1000)
    with record_function("step"):
        works = [dist.isend(out, (rank + 1) % n), dist.irecv(room, (rank - 1) % n)]
        torch.ones(50, 50) @ torch.ones(50, 50)
        for work in works:
            work.wait()
        dist.all_reduce(room)


@pytest.fixture(scope="module")
def trace():
    return collect(around, 3, observe="memory", timeout=60).trace


def opened(trace, path):
    """Parse the file as a viewer does: lanes of slices that nest, arrows from slice to slice."""
    trace.to_chrome(path)
    events = json.loads(path.read_text())["traceEvents"]
    names, lanes, arrows, counters = {}, {}, {}, []
    for e in events:
        if e["ph"] == "M":
            if e["name"].endswith("sort_index"):
                continue
            key = (e["pid"],) if e["name"] == "process_name" else (e["pid"], e["tid"])
            names[key] = e["args"]["name"]
            continue
        assert e["ts"] >= 0
        if e["ph"] == "X":
            assert e["dur"] >= 0
            lanes.setdefault((e["pid"], e["tid"]), []).append(e)
        elif e["ph"] in "sf":
            arrows.setdefault(e["id"], {})[e["ph"]] = e
        else:
            assert e["ph"] == "C"
            counters.append(e)
    for lane in lanes.values():  # two slices of a lane are apart, or one is in the other
        ends = []
        for e in sorted(lane, key=lambda e: (e["ts"], -e["dur"])):
            while ends and ends[-1] <= e["ts"] + 1e-3:
                ends.pop()
            assert not ends or e["ts"] + e["dur"] <= ends[-1] + 1e-3
            ends.append(e["ts"] + e["dur"])
    return names, lanes, arrows, counters


def is_around(end, piece):
    return piece["ts"] <= end["ts"] <= piece["ts"] + piece["dur"] + 1e-3


def test_a_viewer_can_open_it(trace, tmp_path):
    names, lanes, arrows, counters = opened(trace, tmp_path / "trace.json")
    assert [names[rank,] for rank in range(3)] == ["rank 0", "rank 1", "rank 2"]
    found = {}
    for (rank, lane), slices in lanes.items():
        found.setdefault((rank, names[rank, lane]), set()).update(s["name"] for s in slices)
    assert found[0, "labels"] == {"step"}
    assert {"step", "wait: all_reduce", "wait: isend to rank 1"} <= found[0, "computes or waits"]
    assert found[0, "sends"] == {"isend to rank 1"}
    assert found[0, "receives"] == {"irecv from rank 2"}
    assert found[0, "collectives"] == {"all_reduce"}
    assert len(arrows) == 3
    for arrow in arrows.values():
        begin, end = arrow["s"], arrow["f"]
        assert names[begin["pid"], begin["tid"]] == "sends"
        assert any(is_around(begin, s) for s in lanes[begin["pid"], begin["tid"]])
        # What the receiver does next, which is there: it calls the all-reduce
        assert names[end["pid"], end["tid"]] == "computes or waits"
        assert any(s["ts"] >= end["ts"] for s in lanes[end["pid"], end["tid"]])
        assert end["pid"] == (begin["pid"] + 1) % 3
        assert begin["ts"] < end["ts"]
    assert {e["pid"] for e in counters} == {0, 1, 2}
    assert max(e["args"]["communication"] for e in counters) == 8000


def test_a_receive_that_nothing_follows_has_the_arrow_itself(trace, tmp_path):
    last = replace(trace, compute=[], labels=[], blocks=[])
    names, lanes, arrows, _ = opened(last, tmp_path / "trace.json")
    for arrow in arrows.values():
        end = arrow["f"]
        assert (end["bp"], names[end["pid"], end["tid"]]) == ("e", "receives")
        assert any(is_around(end, s) for s in lanes[end["pid"], end["tid"]])


def test_everything_survives_a_file(trace, tmp_path):
    trace.save(tmp_path / "saved")
    loaded = Trace.load(tmp_path / "saved")
    assert loaded == trace
    assert all([loaded.compute, loaded.labels, loaded.blocks])
    assert loaded.timeline().spans == trace.timeline().spans
    assert loaded.memory().peak == trace.memory().peak


def test_an_empty_trace_can_be_written(tmp_path):
    assert opened(Trace(1), tmp_path / "empty")[0] == {
        (0,): "rank 0", (0, 1): "labels", (0, 2): "computes or waits",
    }  # fmt: skip


def test_no_two_ranks_share_the_number_of_a_lane(trace, tmp_path):
    """Perfetto would merge them, and take the one with its process's number for a main thread."""
    names, *_ = opened(trace, tmp_path / "trace.json")
    lanes = [key for key in names if len(key) == 2]
    ranks = {rank for rank, _ in lanes}
    assert len({lane for _, lane in lanes}) == len(lanes)
    assert not ranks & {lane for _, lane in lanes}
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    order = [e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"]
    assert order == [0, 1, 2]
