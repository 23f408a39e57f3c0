"""A recorded run on other devices and other wires: the learner's own trace under sliders."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from course_lib.observe import Trace
from course_lib.simulate.cluster import dgx_a100
from course_lib.simulate.collectives_on_cluster import ALGORITHMS
from course_lib.simulate.hardware import LINKS
from course_lib.simulate.rank_programs import Computed
from course_lib.simulate.replaying import replay

from .gantt_chart import gantt_chart
from .view import View
from .widgets import Control, Explorer, explore

# On the first messages take long enough to be seen.
_INSIDE, _BETWEEN = "10 GbE", "InfiniBand HDR"


def replayed(
    trace: Trace,
    inside: str = _INSIDE,
    between: str = _BETWEEN,
    devices_per_node: int = 8,
    speed: float = 1,
    all_reduce: str = "ring",
    compute: Sequence[Computed] | None = None,
) -> View:
    """The timeline of `trace` as it was replayed, in seconds.

    inside, between   links by name (`hardware.LINKS`)
    devices_per_node  fewer than the run has ranks: it takes several nodes
    speed             how many times as fast as in the recording a device computes
    all_reduce        its algorithm
    compute           as in `replay`; `[]` leaves only communication, the same on every machine
    """
    nodes = -(-trace.world_size // devices_per_node)
    machine = replace(dgx_a100, devices_per_node=devices_per_node, nodes=nodes)
    timeline = replay(
        trace, machine.with_links(inside, between), speed, {"all_reduce": all_reduce}, compute
    )
    where = f"{inside}, one node" if nodes == 1 else f"{inside}, {nodes} nodes on {between}"
    if any(timeline.busy):
        how = "as fast as here" if speed == 1 else f"{speed:g} times as fast as here"
        where += f", devices {how}"
    return gantt_chart(timeline, where, unit="s", node=devices_per_node)


def replay_explorer(trace: Trace, compute: Sequence[Computed] | None = None) -> Explorer:
    """`replayed` under sliders, for a run of the learner's own.

    Where it would change nothing a slider is left out: that of the algorithm in a run without an
    all-reduce, and that of the speed with `compute=[]`.
    """
    choices: dict[str, Sequence[Any] | Control] = {
        "inside": Control(
            list(LINKS), "link inside a node", when=lambda now: now["devices_per_node"] > 1
        ),
        "between": Control(
            list(LINKS), "link between nodes",
            when=lambda now: now["devices_per_node"] < trace.world_size,
        ),
        "devices_per_node": Control([1, 2, 4, 8], "devices per node"),
    }  # fmt: skip
    if compute is None or compute:
        choices["speed"] = Control(
            [0.1, 1, 10, 100, 1000], "devices, as fast as here", "×"
        )  # fmt: skip
    if any(event.op == "all_reduce" for event in trace.events):
        names = (*ALGORITHMS["all_reduce"], "hierarchical")
        choices["all_reduce"] = Control(
            [name for name in names if _works(name, trace)], "all-reduce as"
        )
    return explore(functools.partial(replayed, trace, compute=compute), 0, **choices)


def _works(algorithm: str, trace: Trace) -> bool:
    """Some algorithms are known only for powers of two."""
    return algorithm != "recursive_doubling" or trace.world_size & (trace.world_size - 1) == 0
