"""A recorded run, played again on a modelled cluster.

    replay(results.trace, dgx_a100)                                eight A100s, NVLink
    replay(results.trace, dgx_a100.with_links(inside="10 GbE"))    the same on slow Ethernet

Kept from the recording: what each rank did in which order, and how long it computed. Taken from the
cluster: what each message and each collective costs. A transfer begins when both ends, or all
members, have come to it and its link is free; who waits for it waits until it is over; what was
issued and waited for later goes on beside the computation.

Inside a node each direction between two ranks is a link of its own. What crosses the network queues
for the adapters of its nodes, one for each direction. Each group carries one collective at a time.
Where the cluster's link is `shared`, everything queues for it.

Who comes first in a queue is the modelled cluster's business: on a busy laptop two messages of
different ranks come in any order. So the recording is played twice, first without queues, which
tells when each transfer comes to its queues; then they keep that order.
"""

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from course_lib.observe.timeline import COMMUNICATION, COMPUTE, Timeline, Track

from .cluster import Cluster
from .collectives_on_cluster import collective_seconds
from .engine import NOTHING, Lane, Run, Stuck, run
from .rank_programs import Computed, Program, Work, read_programs
from .recorded_transfers import Recording, Transfer, describe, transfers_of

_Moved = tuple[int, Any, Any]  # task, name, and the recorded event if it was one
_Numbers = dict[Hashable, int]  # task numbers, given out as they are asked for


def replay(
    trace: Recording,
    cluster: Cluster,
    speed: float = 1.0,
    algorithms: Mapping[str, str] | None = None,
    compute: Iterable[Computed] | None = None,
) -> Timeline:
    """The timeline of `trace` on `cluster`, in seconds.

    speed       how many times as fast as in the recording a device computes
    algorithms  of collectives, such as {"all_reduce": "tree"}; see `collectives.ALGORITHMS`
    compute     what the ranks computed, instead of what the trace says. If neither does, a rank
                is taken to compute whenever it is not waiting for communication, from the first
                event of all on

    Raises a ValueError if the trace is not whole, or the cluster has too few devices. The ranks'
    clocks must be comparable, as they are on one machine.
    """
    cluster.require(trace.world_size)
    if not speed > 0:
        raise ValueError(f"speed = {speed} must be more than 0")
    transfers = transfers_of(trace)
    programs = read_programs(trace, compute)
    number: _Numbers = defaultdict(itertools.count().__next__)
    main = _main_lanes(programs, transfers, speed, number)
    jobs = _jobs(transfers, cluster, algorithms or {})
    result = run([*main, *_link_lanes(jobs, number)], len(number))
    if result.stuck:
        raise ValueError(_stuck(result.stuck[0], main, programs))
    if any(job.queues for job in jobs):
        jobs.sort(key=lambda job: _turn(job, number, result))
        lanes = [*main, *_link_lanes(jobs, number, queued=True)]
        result = run(lanes, len(number))
    return Timeline(
        trace.world_size,
        [
            *_compute_tracks(programs, main, result),
            *_transfer_tracks(transfers, number, result),
        ],
    )


# ------------------------------------------------------------------------------------------------
# What the ranks do
# ------------------------------------------------------------------------------------------------


def _main_lanes(
    programs: Sequence[Program],
    transfers: Sequence[Transfer],
    speed: float,
    number: _Numbers,
) -> list[Lane]:
    """One lane a rank: computation takes time, issuing none, waiting as long as it must."""
    needs = {}
    for index, transfer in enumerate(transfers):
        for event in transfer.events:
            needs[event.rank, event.n] = number["move", index]
        if transfer.buffered:
            needs[transfer.events[0].rank, transfer.events[0].n] = NOTHING
    lanes = []
    for rank, program in enumerate(programs):
        lane = Lane()
        for index, step in enumerate(program):
            if isinstance(step, Work):
                lane.add(number["compute", rank, index], step.seconds / speed)
            else:
                who = rank, step.event.n
                need = needs[who] if step.action == "wait" else NOTHING
                lane.add(number[step.action, *who], 0, need)
        lanes.append(lane)
    return lanes


# ------------------------------------------------------------------------------------------------
# What the links do
# ------------------------------------------------------------------------------------------------


class _Job(NamedTuple):
    """A transfer as work for the links: how long it takes, and what it must have for itself."""

    task: int  # number of the transfer
    transfer: Transfer
    seconds: float
    queues: tuple[Hashable, ...]  # adapters, or the wire that all share


def _jobs(
    transfers: Sequence[Transfer], cluster: Cluster, algorithms: Mapping[str, str]
) -> list[_Job]:
    jobs = []
    for index, transfer in enumerate(transfers):
        op, ranks, nbytes = transfer.op, transfer.ranks, transfer.nbytes
        link = cluster.slowest_link(ranks)
        if op == "send":
            seconds = link.seconds(nbytes)
        else:
            seconds = collective_seconds(cluster, op, ranks, nbytes, algorithms.get(op))
        queues = (link.name,) if link.shared else _adapters(transfer, cluster)
        jobs.append(_Job(index, transfer, seconds, queues))
    return jobs


def _link_lanes(jobs: Sequence[_Job], number: _Numbers, queued: bool = False) -> list[Lane]:
    """One lane for each pair of ranks and direction, each group, and if `queued` each queue.

    All lanes take the jobs in the order given. It must be one in which they can begin, so that no
    lane blocks a job that something before it waits for. A job that queues waits until its turn
    has come everywhere, and holds all its queues until it is over.
    """
    lanes: dict[Hashable, Lane] = defaultdict(Lane)
    for index, transfer, seconds, queues in jobs:
        lane = lanes[transfer.group, transfer.ranks]
        for event in transfer.events[:1] if transfer.buffered else transfer.events:
            lane.add(number["arrive", index, event.rank], 0, number["issue", event.rank, event.n])
        for queue in queues if queued else ():
            lanes[queue].add(number["come", index, queue], 0)
            lane.add(number["have", index, queue], 0, number["come", index, queue])
            lanes[queue].add(number["hold", index, queue], 0, number["move", index])
        lane.add(number["move", index], seconds)
    return list(lanes.values())


def _turn(job: _Job, number: _Numbers, unqueued: Run) -> tuple[Any, ...]:
    """When a job has come to its queues; of several at once the lowest rank's is first.

    Jobs that take no time may wait for each other at one instant: they keep the recorded order.
    """
    events = job.transfer.events[:1] if job.transfer.buffered else job.transfer.events
    ready = max(unqueued.ends[number["issue", event.rank, event.n]] for event in events)
    over = unqueued.ends[number["move", job.task]]
    who = (job.transfer.ranks, str(job.transfer.group)) if job.seconds else ()
    return ready, over, who, job.task


def _adapters(transfer: Transfer, cluster: Cluster) -> tuple[Hashable, ...]:
    """Those that a message leaves and comes in by, or the hops of a collective's ring."""
    ranks = transfer.ranks
    hops = [ranks] if transfer.op == "send" else zip(ranks, ranks[1:] + ranks[:1], strict=True)
    used: dict[Hashable, None] = {}
    for sender, receiver in hops:
        if cluster.node(sender) != cluster.node(receiver):
            used["out", *cluster.adapter(sender)] = None
            used["in", *cluster.adapter(receiver)] = None
    return tuple(used)


# ------------------------------------------------------------------------------------------------
# What came out
# ------------------------------------------------------------------------------------------------


def _compute_tracks(
    programs: Sequence[Program], main: Sequence[Lane], result: Run
) -> Iterator[Track]:
    for rank, (program, lane) in enumerate(zip(programs, main, strict=True)):
        steps = zip(program, lane.tasks, strict=True)
        spans = [(task, step.what, None) for step, task in steps if isinstance(step, Work)]
        yield _track(rank, COMPUTE, spans, result)


def _transfer_tracks(
    transfers: Sequence[Transfer], number: _Numbers, result: Run
) -> Iterator[Track]:
    """Sends, receives and collectives of each rank, each while its bytes move."""
    moving: dict[tuple[int, str], list[_Moved]] = defaultdict(list)
    for index, transfer in enumerate(transfers):
        task = number["move", index]
        for event in transfer.events:
            lane, name = COMMUNICATION, transfer.op
            if transfer.op == "send":
                sender, receiver = transfer.ranks
                sends = event.op == "send"
                lane = "send" if sends else "receive"
                name = f"send to {receiver}" if sends else f"receive from {sender}"
            moving[event.rank, lane].append((task, name, event))
    for (rank, name), spans in sorted(moving.items()):
        spans.sort(key=lambda span: result.starts[span[0]])
        yield _track(rank, name, spans, result)


def _track(rank: int, name: str, spans: Sequence[_Moved], result: Run) -> Track:
    return Track(
        rank,
        name,
        [result.starts[task] for task, _, _ in spans],
        [result.ends[task] for task, _, _ in spans],
        [what for _, what, _ in spans],
        [event for _, _, event in spans],
    )


def _stuck(stuck: Stuck, main: Sequence[Lane], programs: Sequence[Program]) -> str:
    """Lanes of ranks come first, so the first stuck lane is one."""
    step = programs[stuck.lane][main[stuck.lane].tasks.index(stuck.task)]
    who = f"rank {stuck.lane}" if isinstance(step, Work) else describe(step.event)
    return (
        f"{who} waits for ever: the recording's order does not hold together;"
        " are its clocks comparable?"
    )
