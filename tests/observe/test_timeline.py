"""What was computed and when: on real ranks, and from records whose timeline can be counted."""

import time

import pytest
import torch
import torch.distributed as dist
from torch.profiler import record_function

from course_lib.observe import ComputeSpan, Span, Trace
from course_lib.ranks import RankError, collect
from course_lib.techniques.schedules import Op
from tests.observe.events import event


def busy(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def take_turns():
    """Rank 0 computes, then rank 1; rank 1 waits in the meantime."""
    rank, x = dist.get_rank(), torch.ones(3)
    if rank == 0:
        with record_function("F0.0"), record_function("inner"):
            busy(0.05)
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
        with record_function("F1.0"):
            busy(0.03)
    with record_function("last"):
        work = dist.all_reduce(x, async_op=True)
        busy(0.02)
        work.wait()


def test_computation_in_processor_time_and_labels():
    trace = collect(take_turns, 2, timeout=60).trace
    seconds = {}
    for span in trace.compute:
        assert span.seconds >= 0
        assert span.start <= span.end
        key = span.rank, span.spans
        seconds[key] = seconds.get(key, 0) + span.seconds
    # At least what was asked for; what it took beyond is up to the machine.
    assert seconds[0, ("F0.0", "inner")] >= 0.05
    assert seconds[1, ("F1.0",)] >= 0.03
    assert seconds[0, ("last",)] >= 0.02
    for rank, names in enumerate((["inner", "F0.0", "last"], ["F1.0", "last"])):
        labels = [label for label in trace.labels if label.rank == rank]
        assert [label.name for label in labels] == names
        assert all(label.start < label.end for label in labels)
    inner, outer = (label for label in trace.labels if label.name in ("inner", "F0.0"))
    assert outer.start <= inner.start < inner.end <= outer.end
    # No stretch goes on through a wait or into another label.
    for span in trace.compute:
        for e in trace.of(span.rank):
            assert span.end <= e.waited or span.start >= e.done
    (first,) = {span.name for span in trace.compute if "inner" in span.spans}
    assert first == "F0.0"  # a pipeline's operation goes before what is inside it

    timeline = trace.timeline()
    spans = {span.what: span for span in timeline.spans if isinstance(span.what, Op)}
    assert spans[Op("F", 1, 0)].start >= spans[Op("F", 0, 0)].end
    assert timeline.peak_in_flight == (1, 1)
    assert {track.name for track in timeline.tracks} == {
        "compute", "send", "receive", "communication",
    }  # fmt: skip

    last = trace.within("last")
    assert [e.op for e in last.events] == ["all_reduce"] * 2
    assert {span.spans for span in last.compute} == {("last",)}


def stop():
    with record_function("open"):
        raise KeyError("learner")


def test_a_label_that_was_open_at_the_end_is_kept():
    with pytest.raises(RankError) as caught:
        collect(stop, 2, timeout=60)
    assert {label.name for label in caught.value.trace.labels} == {"open"}


# ------------------------------------------------------------------------------------------------
# By hand
# ------------------------------------------------------------------------------------------------


def work(rank, start, seconds, *spans, wall=None):
    return ComputeSpan(rank, start, start + (wall or seconds), seconds, spans)


def test_four_ranks_on_two_cores_give_the_timeline_of_four_devices():
    # Two computed at once and then the other two, a second of the processor each
    compute = [work(rank, 2 * (rank // 2), 1, wall=2) for rank in range(4)]
    reduce = [
        event(r, 0, "all_reduce", world=4, issued=2 * (r // 2) + 2, waited=2 * (r // 2) + 2, done=5)
        for r in range(4)
    ]
    timeline = Trace(4, reduce, compute=compute).timeline()
    assert timeline.busy == (1, 1, 1, 1)
    assert {s._replace(event=None) for s in timeline.spans if s.track == "communication"} == {
        Span(rank, 1, 2, "all_reduce", "communication") for rank in range(4)
    }  # a second on the wall after the last one had come


def test_who_waits_late_waits_no_more():
    compute = [work(0, 0, 1), work(0, 1.5, 5), work(1, 0, 2)]
    sent = event(0, 0, "send", peer=1, issued=1, waited=6.5, done=6.5)
    received = event(1, 0, "recv", peer=0, issued=2, waited=2, done=3)
    timeline = Trace(2, [sent, received], compute=compute).timeline()
    spans = [s for s in timeline.spans if s.track != "compute"]
    assert [s.event for s in spans] == [sent, received]
    assert [s._replace(event=None) for s in spans] == [
        Span(0, 2, 6, "send to 1", "send"),
        Span(1, 2, 3, "receive from 0", "receive"),
    ]


def test_a_buffered_send_does_not_wait_for_its_receive():
    compute = [work(0, 0, 1), work(0, 1.5, 1), work(1, 0, 9)]
    sent = event(0, 0, "send", peer=1, issued=1, waited=1, done=1.25)
    received = event(1, 0, "recv", peer=0, issued=9, waited=9, done=9.5)
    timeline = Trace(2, [sent, received], compute=compute).timeline()
    assert Span(0, 1.25, 2.25, "compute") in timeline.spans


def test_a_run_that_did_not_finish_has_a_timeline_up_to_there():
    stuck = event(0, 0, "recv", peer=1, issued=1, waited=1)
    timeline = Trace(2, [stuck], compute=[work(0, 0, 1, "F0.0")]).timeline()
    assert timeline.spans == (Span(0, 0, 1, Op("F", 0, 0)),)


def test_what_goes_on_without_a_wait_is_one_span():
    sent = [event(0, n, "send", peer=1, issued=n + 1, waited=9, done=9) for n in range(2)]
    received = event(1, 0, "recv", peer=0, issued=8, waited=8, done=8.5)
    compute = [work(0, start, 1) for start in (0, 1.5, 2.5)] + [work(1, 0, 5), work(1, 8.75, 1)]
    timeline = Trace(2, [*sent, received], compute=compute).timeline()
    assert [s for s in timeline.spans if s.track == "compute"] == [
        Span(0, 0, 3, "compute"),
        Span(1, 0, 5, "compute"),
        Span(1, 5.5, 6.5, "compute"),
    ]


def test_an_operation_that_communicates_is_held_once():
    spans = [work(0, start, 1, "F0.0", "all-reduce") for start in (0, 2)]
    timeline = Trace(1, compute=[*spans, work(0, 4, 1, "B0.0")]).timeline()
    assert timeline.peak_in_flight == (1,)
