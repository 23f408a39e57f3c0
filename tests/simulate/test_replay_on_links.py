"""Recorded runs replay as a second simulator, message by message, says they must.

Random programs run on a cluster in the second simulator, which records them. `replay` takes the
recording to another cluster; the second simulator runs the programs there.
"""

import random
import statistics
from types import SimpleNamespace

import pytest

from course_lib.observe import CommEvent, Trace
from course_lib.simulate import Cluster, Link, replay
from course_lib.simulate.hardware import A100_80GB
from tests.simulate.link_simulator import Links, Operation, Program

SEEDS = range(40)
HERE = Cluster("here", A100_80GB, 8, Link("in", 0.01, 50.0), Link("out", 0.01, 50.0))


def draw(seed: int) -> list[Program]:
    """Rounds of computation, with messages and all-reduces that are waited for sooner or later."""
    dice = random.Random(seed)
    ranks = dice.choice((4, 6, 8))
    programs = [Program() for _ in range(ranks)]
    open_: list[list[str]] = [[] for _ in range(ranks)]

    def start(rank: int, name: str, operation: Operation) -> None:
        programs[rank].operations[name] = operation
        programs[rank].steps.append(("start", name))
        open_[rank].append(name)

    for number in range(dice.randint(8, 20)):
        for program in programs:
            if dice.random() < 0.7:
                program.steps.append(("compute", dice.uniform(0.2, 2)))
        nbytes = dice.randint(1, 40)
        if dice.random() < 0.65:
            for tag in range(10 * number, 10 * number + dice.randint(1, 3)):
                sender, receiver = dice.sample(range(ranks), 2)
                start(sender, f"send {tag}", Operation("send", nbytes, receiver, tag))
                start(receiver, f"recv {tag}", Operation("recv", nbytes, sender, tag))
        else:
            group = tuple(sorted(dice.sample(range(ranks), dice.randint(2, ranks))))
            for rank in group:
                operation = Operation("all_reduce", nbytes * len(group), None, number, group)
                start(rank, f"reduce {number}", operation)
        for rank, program in enumerate(programs):
            while open_[rank] and dice.random() < 0.6:
                program.steps.append(("wait", open_[rank].pop(0)))
    for program, names in zip(programs, open_, strict=True):
        program.steps += [("wait", name) for name in names]
    return programs


def elsewhere(seed: int, ranks: int) -> Cluster:
    """Two nodes on a slower network, with an adapter for each device, or for several."""
    dice = random.Random(1000 + seed)
    per_node = ranks // 2
    adapters = dice.choice([n for n in range(1, per_node + 1) if per_node % n == 0])
    near = Link("in", dice.uniform(0, 0.05), dice.uniform(20, 80))
    far = Link("out", dice.uniform(0, 0.2), dice.uniform(5, 20))
    return Cluster("elsewhere", A100_80GB, per_node, near, far, adapters, nodes=2)


def recording(programs: list[Program]) -> tuple[Trace, list[SimpleNamespace]]:
    """What a trace of a run would hold: its events, and what the ranks computed."""
    trace = Trace(len(programs), [])
    for rank, program in enumerate(programs):
        names = [what for kind, what in program.steps if kind == "start"]
        for n, name in enumerate(names):
            operation = program.operations[name]
            trace.events.append(_event(rank, n, operation, len(programs)))
    computed = [
        SimpleNamespace(rank=rank, name="work", start=start, seconds=seconds)
        for rank, program in enumerate(programs)
        for start, seconds in program.computed
    ]
    return trace, computed


def _event(rank: int, n: int, operation: Operation, world_size: int) -> CommEvent:
    reduces = operation.op == "all_reduce"
    return CommEvent(
        rank=rank,
        n=n,
        op=operation.op,
        group=str(operation.ranks),
        ranks=operation.ranks or tuple(range(world_size)),
        peer=operation.peer,
        tag=0 if reduces else operation.tag,
        nbytes=operation.nbytes,
        shapes=((),),
        dtype="float32",
        reduce_op="sum" if reduces else None,
        blocking=False,
        native=False,
        issued=operation.issued,
        waited=operation.waited,
        done=operation.done,
    )


def replayed(seed: int) -> tuple[float, float]:
    """Seconds by the replay, and by the second simulator."""
    programs = draw(seed)
    Links(HERE, programs).run()
    trace, computed = recording(programs)
    there = elsewhere(seed, len(programs))
    return replay(trace, there, compute=computed).makespan, Links(there, draw(seed)).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_program_takes_as_long_as_message_by_message(seed):
    ours, theirs = replayed(seed)
    assert ours == pytest.approx(theirs, rel=0.15)


def test_most_of_them_are_much_nearer():
    off = [abs(ours / theirs - 1) for ours, theirs in map(replayed, SEEDS)]
    assert statistics.median(off) < 0.02
    assert sum(error > 0.05 for error in off) <= len(off) // 10


def test_how_fast_messages_were_where_they_were_recorded_changes_nothing():
    slow = HERE.with_links(inside=Link("in", 0.3, 3.0), between=Link("out", 0.1, 9.0))
    for seed in SEEDS:
        times = []
        for machine in (HERE, slow):
            programs = draw(seed)
            Links(machine, programs).run()
            trace, computed = recording(programs)
            there = elsewhere(seed, len(programs))
            times.append(replay(trace, there, compute=computed).makespan)
        assert times[0] == pytest.approx(times[1])


def test_two_ranks_of_a_node_queue_for_one_adapter_and_each_has_its_own_where_there_are_two():
    programs = [Program() for _ in range(4)]
    for sender, receiver in ((0, 2), (1, 3)):
        for rank, operation in (
            (sender, Operation("send", 10, receiver)),
            (receiver, Operation("recv", 10, sender)),
        ):
            programs[rank].operations["m"] = operation
            programs[rank].steps = [("start", "m"), ("wait", "m")]
    Links(HERE, programs).run()
    trace, computed = recording(programs)
    for adapters, seconds in ((1, 20), (2, 10)):
        there = Cluster(
            "there", A100_80GB, 2, Link("in", 0, 10.0), Link("out", 0, 1.0), adapters, nodes=2
        )
        assert replay(trace, there, compute=computed).makespan == pytest.approx(seconds)
        assert Links(there, programs).run() == pytest.approx(seconds, abs=1e-4)


def test_the_second_simulator_knows_a_ring():
    programs = [Program() for _ in range(4)]
    for program in programs:
        program.operations["r"] = Operation("all_reduce", 8, ranks=(0, 1, 2, 3))
        program.steps = [("start", "r"), ("wait", "r")]
    near = Cluster("near", A100_80GB, 4, Link("in", 0.5, 1.0), Link("out", 9, 1.0))
    assert Links(near, programs).run() == pytest.approx(2 * 3 * (0.5 + 8 / 4), abs=1e-4)
