"""A recorded run plays again as it must: by hand-made recordings whose replay can be counted."""

from types import SimpleNamespace

import pytest

from course_lib.observe import CommEvent, ComputeSpan, Trace
from course_lib.observe.timeline import COMMUNICATION, COMPUTE
from course_lib.simulate.cluster import Cluster, dgx_a100
from course_lib.simulate.hardware import A100_80GB, Link
from course_lib.simulate.pipeline import simulate
from course_lib.simulate.replaying import replay
from course_lib.techniques.schedules import Op, gpipe, needs, num_stages, one_f_one_b

# One second a byte inside a node, ten between nodes, so that all times can be read off
PLAIN = Cluster("plain", A100_80GB, 4, Link("in", 0, 1.0), Link("out", 0, 0.1), nodes=2)


class Recording(Trace):
    """A trace written by hand: calls that come back at `done` block, unless `waited` says not."""

    def add(self, rank, op, issued, done=None, waited=None, **more):
        fields = {"group": "0", "ranks": (0, 1), "peer": None, "tag": 0, "nbytes": 1, **more}
        event = CommEvent(
            rank=rank,
            n=len(self.of(rank)),
            op=op,
            shapes=((),),
            dtype="float32",
            reduce_op="sum" if op == "all_reduce" else None,
            blocking=waited is None,
            native=False,
            issued=issued,
            waited=issued if waited is None and done is not None else waited,
            done=done,
            **fields,
        )
        self.events.append(event)
        return self


def computed(rank, start, seconds, name="work"):
    return SimpleNamespace(rank=rank, name=name, start=start, seconds=seconds)


def tracks(timeline):
    return {
        (t.rank, t.name): list(zip(t.starts, t.ends, t.what, strict=True)) for t in timeline.tracks
    }


# ------------------------------------------------------------------------------------------------
# Messages
# ------------------------------------------------------------------------------------------------


def test_a_message_takes_what_its_link_takes():
    recording = Recording(2)
    recording.add(0, "send", 0, 5, peer=1, nbytes=3).add(1, "recv", 1, 5, peer=0, nbytes=3)
    t = tracks(replay(recording, PLAIN, compute=[]))
    assert t[0, "send"] == [(0, 3, "send to 1")]
    assert t[1, "receive"] == [(0, 3, "receive from 0")]


def test_between_nodes_it_takes_the_network():
    recording = Recording(5)
    recording.add(0, "send", 0, 5, peer=4, nbytes=3).add(4, "recv", 1, 5, peer=0, nbytes=3)
    assert replay(recording, PLAIN, compute=[]).makespan == 30


def test_it_begins_when_both_ends_are_there_and_both_wait_for_it():
    recording = Recording(2)
    recording.add(0, "send", 2, 9, peer=1, nbytes=3).add(1, "recv", 7, 9, peer=0, nbytes=3)
    work = [computed(0, 0, 2), computed(1, 0, 7), computed(0, 9, 1), computed(1, 9, 1)]
    t = tracks(replay(recording, PLAIN, compute=work))
    assert t[0, "send"] == [(7, 10, "send to 1")]
    assert t[0, COMPUTE] == [(0, 2, "work"), (10, 11, "work")]
    assert t[1, COMPUTE] == [(0, 7, "work"), (10, 11, "work")]


def test_a_buffered_send_lets_its_sender_go():
    recording = Recording(2)
    recording.add(0, "send", 2, 3, peer=1, nbytes=4).add(1, "recv", 7, 9, peer=0, nbytes=4)
    work = [computed(0, 0, 2), computed(1, 0, 7), computed(0, 3, 1)]
    t = tracks(replay(recording, PLAIN, compute=work))
    assert t[0, COMPUTE] == [(0, 2, "work"), (2, 3, "work")]
    assert t[0, "send"] == [(2, 6, "send to 1")]


def test_asynchronous_messages_go_on_beside_the_computation():
    recording = Recording(2)
    recording.add(0, "send", 0, 6, waited=5, peer=1, nbytes=4)
    recording.add(1, "recv", 0, 6, waited=5.5, peer=0, nbytes=4)
    work = [computed(0, 0, 5), computed(1, 0, 5.5)]
    assert replay(recording, PLAIN, compute=work).makespan == 5.5  # hidden
    assert replay(recording, PLAIN, speed=5, compute=work).makespan == 4  # no longer
    far = replay(recording, PLAIN.with_links(inside=PLAIN.between), compute=work)
    assert far.makespan == 40


def test_a_link_carries_one_message_at_a_time_and_direction():
    recording = Recording(2)
    for tag in (0, 1):
        recording.add(0, "send", 0, 9, waited=8, peer=1, tag=tag, nbytes=2)
    for tag in (0, 1):
        recording.add(1, "recv", 0, 9, waited=8, peer=0, tag=tag, nbytes=2)
    recording.add(1, "send", 0, 9, waited=8, peer=0, nbytes=3)
    recording.add(0, "recv", 0, 9, waited=8, peer=1, nbytes=3)
    t = tracks(replay(recording, PLAIN, compute=[]))
    assert [span[:2] for span in t[0, "send"]] == [(0, 2), (2, 4)]
    assert [span[:2] for span in t[1, "send"]] == [(0, 3)]
    laptop = PLAIN.with_links(inside=Link("loopback", 0, 1.0, shared=True))
    assert replay(recording, laptop, compute=[]).makespan == 2 + 2 + 3


def test_messages_overtake_by_tag_without_blocking_the_link():
    recording = Recording(2)
    recording.add(0, "send", 0, 9, waited=8, peer=1, tag=0, nbytes=2)
    recording.add(0, "send", 0, 9, waited=8, peer=1, tag=1, nbytes=2)
    recording.add(1, "recv", 1, 4, peer=0, tag=1, nbytes=2)
    recording.add(1, "recv", 5, 8, peer=0, tag=0, nbytes=2)
    assert replay(recording, PLAIN, compute=[]).makespan == 4


def test_a_receive_from_anyone_takes_what_was_sent_first():
    recording = Recording(3)
    recording.add(0, "send", 4, 9, peer=2, nbytes=1).add(1, "send", 3, 9, peer=2, nbytes=5)
    recording.add(2, "recv", 0, 9, nbytes=5).add(2, "recv", 0, 9, nbytes=5)
    t = tracks(replay(recording, PLAIN, compute=[]))
    assert [what for _, _, what in t[2, "receive"]] == ["receive from 1", "receive from 0"]


def test_a_ring_step_of_blocking_pairs_is_played_in_its_order():
    # Even ranks send first, odd ones receive first: two rounds of one message each
    n, recording = 4, Recording(4)
    for rank in range(n):
        right, left = (rank + 1) % n, (rank - 1) % n
        first, second = ("send", right), ("recv", left)
        if rank % 2:
            first, second = second, first
        for start, (op, peer) in ((0, first), (1, second)):
            recording.add(rank, op, start, start + 1, peer=peer, nbytes=6)
    assert replay(recording, PLAIN, compute=[]).makespan == 12


# ------------------------------------------------------------------------------------------------
# Collectives
# ------------------------------------------------------------------------------------------------


def everyone(op, ranks, issued, done, **more):
    recording = Recording(len(ranks))
    for rank in ranks:
        recording.add(rank, op, issued[rank], done, ranks=tuple(ranks), **more)
    return recording


def test_a_collective_begins_with_its_last_member_and_costs_its_algorithm():
    recording = everyone("all_reduce", range(4), [1, 2, 3, 6], 20, nbytes=8)
    work = [computed(rank, 0, [1, 2, 3, 6][rank]) for rank in range(4)]
    t = replay(recording, PLAIN, compute=work)
    assert tracks(t)[0, COMMUNICATION] == [(6, 18, "all_reduce")]  # 2 (4-1)/4 of 8 bytes
    tree = replay(recording, PLAIN, compute=work, algorithms={"all_reduce": "tree"})
    assert tree.makespan == 6 + 2 * 2 * 8
    assert t.idle == (17, 16, 15, 12)


def test_shards_are_added_up_to_the_whole_tensor():
    for op in ("all_gather", "reduce_scatter"):
        recording = everyone(op, range(4), [0] * 4, 9, nbytes=2)
        assert replay(recording, PLAIN, compute=[]).makespan == 3 / 4 * 8


def test_unequal_shards_are_added_up_too():
    recording = Recording(2)
    for rank in range(2):
        recording.add(rank, "all_gather", 0, 9, nbytes=(6, 2)[rank], splits=(6, 2))
    assert replay(recording, PLAIN, compute=[]).makespan == 8 / 2


def test_a_shared_wire_carries_what_all_ranks_send():
    laptop = PLAIN.with_links(inside=Link("loopback", 0, 1.0, shared=True))
    recording = everyone("all_reduce", range(4), [0] * 4, 9, nbytes=8)
    assert replay(recording, laptop, compute=[]).makespan == 4 * 12


def test_groups_work_at_the_same_time():
    recording = Recording(4)
    for group in ((0, 1), (2, 3)):
        for rank in group:
            recording.add(rank, "all_reduce", 0, 9, ranks=group, nbytes=4)
    assert replay(recording, PLAIN, compute=[]).makespan == 4


def test_two_groups_of_the_same_ranks_keep_their_own_order():
    recording = Recording(2)
    for rank, names in ((0, "ab"), (1, "ba")):
        for name in names:
            recording.add(rank, "all_reduce", 0, 9, waited=5, group=name, nbytes=4)
    assert replay(recording, PLAIN, compute=[]).makespan == 4


def test_what_nobody_was_seen_to_wait_for_is_waited_for_where_it_was_seen_to_be_over():
    # As in DistributedDataParallel, whose C++ issues and waits
    recording = Recording(2)
    for rank in range(2):
        recording.add(rank, "all_reduce", 1, nbytes=5)
        recording.events[-1].done = 2
    work = [computed(0, 0, 1), computed(0, 1.5, 0.25), computed(0, 2.5, 1)]
    t = tracks(replay(recording, PLAIN, compute=work))
    assert [span[:2] for span in t[0, COMPUTE]] == [(0, 1), (1, 1.25), (6, 7)]


def test_buckets_overlap_with_backward_and_queue_for_their_group():
    # Three buckets, issued as backward makes them, waited for at the end: data parallelism
    recording = Recording(2)
    for rank in range(2):
        for bucket in range(3):
            recording.add(rank, "all_reduce", bucket + 1, 9, waited=3 + bucket / 10, nbytes=2)
    work = [computed(rank, start, 1) for rank in range(2) for start in range(3)]
    t = replay(recording, PLAIN, compute=work)
    assert [span[:2] for span in tracks(t)[0, COMMUNICATION]] == [(1, 3), (3, 5), (5, 7)]
    assert t.makespan == 7
    assert replay(recording, dgx_a100, compute=work).makespan == pytest.approx(3, abs=1e-4)


# ------------------------------------------------------------------------------------------------
# Computation
# ------------------------------------------------------------------------------------------------


def test_without_records_of_computation_a_rank_computes_whenever_it_does_not_wait():
    recording = Recording(2)
    recording.add(0, "barrier", 10, 14).add(1, "barrier", 13, 14)
    recording.add(0, "barrier", 16, 19).add(1, "barrier", 18, 19)
    t = replay(recording, PLAIN)
    assert tracks(t)[0, COMPUTE] == [(3, 5, "compute")]
    assert tracks(t)[1, COMPUTE] == [(0, 3, "compute"), (3, 7, "compute")]
    assert replay(recording, PLAIN, speed=2).makespan == 3.5


def test_recorded_computation_keeps_its_processor_time_and_not_its_wall_time():
    # Four ranks on two cores: two seconds each on the wall, one of the processor
    recording = everyone("barrier", range(4), [2] * 4, 2.1)
    work = [computed(rank, 0, 1) for rank in range(4)]
    assert replay(recording, PLAIN, compute=work).makespan == 1


def test_what_a_trace_says_of_its_computation_is_taken():
    recording = everyone("barrier", range(4), [2] * 4, 2.1)
    recording.compute = [ComputeSpan(rank, 0, 2, 1, ("F0.0",)) for rank in range(4)]
    timeline = replay(recording, PLAIN)
    assert timeline.makespan == 1
    assert {span.what for span in timeline.spans if span.track == COMPUTE} == {Op("F", 0, 0)}
    assert replay(recording, PLAIN, speed=4).makespan == 0.25
    assert replay(recording, PLAIN, compute=[computed(0, 0, 3)]).makespan == 3


@pytest.mark.parametrize("make", [gpipe, one_f_one_b])
@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 3), (4, 6)])
def test_a_recorded_pipeline_replays_as_its_schedule_simulates(make, p, m):
    # A recording with other, uneven times; replayed with asynchronous sends and unit costs
    schedule = make(p, m)
    recording, work = as_recorded(schedule)
    t = replay(recording, PLAIN, compute=work)
    ours = {span.what: (span.start, span.end) for span in t.spans if span.track == COMPUTE}
    theirs = {span.what: (span.start, span.end) for span in simulate(schedule, send=1).spans}
    assert ours == theirs
    assert t.peak_in_flight == simulate(schedule).peak_in_flight


def as_recorded(schedule):
    """Play a schedule with uneven times and write down what a trace of it would hold.

    All receives are posted at once and waited for when needed, sends are never waited for. After an
    operation ends, its send comes first, then the wait, then the next operation.
    """
    slow = simulate(schedule, forward=[2 + s for s in range(len(schedule))], backward=7, send=3)
    recording, work = Recording(len(schedule)), []
    for rank, row in enumerate(schedule):
        spans = [span for span in slow.spans if span.rank == rank]
        ends = [0, *(span.end for span in spans)]
        for op, span, before in zip(row, spans, ends[:-1], strict=True):
            for need in needs(op, num_stages(schedule)):
                if need.stage != op.stage:
                    times = {"issued": -1, "waited": before + 0.02, "done": span.start + 0.03}
                    recording.add(rank, "recv", peer=need.stage, tag=tag_of(need), **times)
            seconds = 1 if op.kind == "F" else 2
            work.append(computed(rank, span.start + 0.04, seconds, str(op)))
        for op, span in zip(row, spans, strict=True):
            to = op.stage + (1 if op.kind == "F" else -1)
            if 0 <= to < len(schedule):
                recording.add(rank, "send", span.end + 0.01, peer=to, tag=tag_of(op))
    return recording, work


def tag_of(op):
    return 2 * op.microbatch + "FB".index(op.kind)


# ------------------------------------------------------------------------------------------------
# Recordings that are not whole
# ------------------------------------------------------------------------------------------------


def pair(**receive):
    recording = Recording(2).add(0, "send", 0, 5, peer=1, nbytes=400)
    return recording.add(1, "recv", 1, 5, **{"peer": 0, "nbytes": 400, **receive})


@pytest.mark.parametrize(
    ("recording", "said"),
    [
        (
            Recording(2).add(1, "recv", 0, 1, peer=0, nbytes=400),
            r"rank 1, event 0: recv of 400 bytes from rank 0 \(tag 0\) has no send",
        ),
        (
            Recording(2).add(0, "send", 0, 1, peer=1, nbytes=400),
            r"rank 0, event 0: send of 400 bytes to rank 1 \(tag 0\) has no receive",
        ),
        (pair(tag=7), r"from rank 0 \(tag 7\) has no send"),
        (pair(peer=1), r"from rank 1 \(tag 0\) has no send"),
        (Recording(2).add(0, "recv", 0, 1), "from any rank .* has no send"),
        (
            Recording(2).add(0, "barrier", 0, 1),
            r"collective 0 of the group of ranks \(0, 1\) is missing on rank 1: rank 0, event 0",
        ),
        (
            Recording(2).add(0, "barrier", 0, 1).add(1, "all_reduce", 0, 1),
            "differs in its operation: rank 0, event 0: barrier .* rank 1, event 0: all_reduce",
        ),
        (
            Recording(2).add(0, "all_reduce", 2, 3, nbytes=8).add(1, "all_reduce", 2, 3, nbytes=4),
            "collective 0 .* differs in its size: rank 0, event 0: all_reduce of 8 bytes",
        ),
        (Recording(2).add(3, "barrier", 0, 1), "rank 3, event 0: .* in a world of 2 ranks"),
        (
            Recording(2).add(0, "barrier", 0, waited=0).add(1, "barrier", 0, 1),
            "rank 0, event 0: barrier .* was never over",
        ),
    ],
)
def test_what_is_missing_is_named(recording, said):
    with pytest.raises(ValueError, match=said):
        replay(recording, PLAIN)


def test_an_order_that_does_not_hold_together_is_reported():
    # Both ranks receive first, so neither can have sent
    recording = Recording(2)
    for rank in (0, 1):
        recording.add(rank, "recv", 0, 1, peer=1 - rank).add(rank, "send", 2, 3, peer=1 - rank)
    with pytest.raises(ValueError, match=r"rank 0, event 0: recv .* waits for ever"):
        replay(recording, PLAIN)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"speed": 0}, "speed = 0"),
        ({"algorithms": {"barrier": "magic"}}, "barrier has no algorithm 'magic'"),
        ({"compute": [computed(5, 0, 1)]}, "computation of rank 5 in a world of 2"),
        ({"compute": [computed(1, 0, -1)]}, "rank 1 computes work for -1 seconds"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, said):
    recording = everyone("barrier", range(2), [0, 0], 1)
    with pytest.raises(ValueError, match=said):
        replay(recording, PLAIN, **options)


def test_a_cluster_with_too_few_devices_is_refused():
    recording = everyone("barrier", range(9), [0] * 9, 1)
    with pytest.raises(ValueError, match="9 ranks on DGX A100 with 8 devices"):
        replay(recording, dgx_a100)
    assert replay(recording, dgx_a100.with_nodes(2), compute=[]).makespan > 0
