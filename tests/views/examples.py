"""One example of every view and every widget, as large as lessons show them."""

from collections.abc import Callable
from types import SimpleNamespace

from course_lib.observe import CommEvent, Memory, Trace
from course_lib.observe.events import Block
from course_lib.simulate import dgx_a100, plan, simulate
from course_lib.simulate.convnets import layers, resnet101
from course_lib.simulate.models import MODELS
from course_lib.techniques.mesh import Mesh
from course_lib.techniques.schedules import gpipe, interleaved, one_f_one_b, zb_h1
from course_lib.views.bubble_curves import bubble_curves
from course_lib.views.chain_replication import chain_replication
from course_lib.views.context_explorer import context_explorer, context_ring
from course_lib.views.cost_curves import cost_curves
from course_lib.views.devices_needed import devices_needed
from course_lib.views.expert_groups import expert_groups
from course_lib.views.expert_loads import expert_explorer, expert_loads
from course_lib.views.gantt_chart import gantt_chart
from course_lib.views.grouped_bars import grouped_bars
from course_lib.views.key_owners import key_owners
from course_lib.views.loss_curves import loss_curves
from course_lib.views.memory_bars import run_memory
from course_lib.views.memory_curves import memory_curves
from course_lib.views.mesh_cube import mesh_cube
from course_lib.views.mesh_links import chosen_mesh, mesh_explorer
from course_lib.views.moving_values import moving_explorer, moving_values
from course_lib.views.number_range import fp16_range, loss_scales
from course_lib.views.overlap import overlap_step
from course_lib.views.parameter_server_timelines import parameter_server_timelines
from course_lib.views.plan_explorer import plan_explorer, plan_view
from course_lib.views.ratio_curves import ratio_curves
from course_lib.views.replay_explorer import replay_explorer, replayed
from course_lib.views.replicas import replicas
from course_lib.views.ring_steps import ring_steps
from course_lib.views.scaling_curves import all_reduce_explorer, all_reduce_scaling
from course_lib.views.schedule_explorer import pipeline_timeline, schedule_explorer
from course_lib.views.server_and_ring import server_and_ring
from course_lib.views.stacked_bars import stacked_bars
from course_lib.views.step_times import step_times
from course_lib.views.tensor_parallel_layer import sharding_explorer, tensor_parallel_layer
from course_lib.views.token_routing import token_routing
from course_lib.views.traffic_bars import traffic_bars
from course_lib.views.traffic_matrix import traffic_matrix
from course_lib.views.view import View
from course_lib.views.widgets import Explorer, explore
from course_lib.views.zero_explorer import zero_explorer, zero_memory
from course_lib.views.zero_step import zero_step, zero_step_explorer

RANKS = 8


def exchange() -> Trace:
    """Each rank sends to the next, then all reduce."""
    events, everybody = [], tuple(range(RANKS))

    def add(rank: int, n: int, op: str, peer: int | None, issued: float, waited: float) -> None:
        events.append(
            CommEvent(
                rank=rank, n=n, op=op, group="0", ranks=everybody, peer=peer, tag=0, nbytes=4000,
                shapes=((1000,),), dtype="float32", reduce_op=None, blocking=issued == waited,
                native=False,
                issued=issued, waited=waited, done=waited + 1,
            )
        )  # fmt: skip

    for rank in range(RANKS):
        add(rank, 0, "send", (rank + 1) % RANKS, issued=0, waited=2)
        add(rank, 1, "recv", (rank - 1) % RANKS, issued=1, waited=1)
        add(rank, 2, "all_reduce", None, issued=4, waited=4)
    return Trace(RANKS, events)


def memory() -> Memory:
    """Ranks that take and give back 300 times."""
    kinds = ("parameters", "gradients", "optimizer", "activations", "communication", "other")
    return Memory(
        RANKS,
        [
            Block(rank, n, kinds[n % 6], [(n, 1000 + n, False), (n + 40.5, 0, False)])
            for rank in range(RANKS)
            for n in range(300)
        ],
    )


TRACE, MEMORY = exchange(), memory()
NUMBERS = [[float(rank)] for rank in range(RANKS)]
ARRIVED = [{1: [[float((rank - 1) % RANKS)]], 2: [[28.0]]} for rank in range(RANKS)]
MOVED = (TRACE, NUMBERS, ARRIVED, [[28.0]] * RANKS)
PLANS = plan(MODELS["GPT-3 175B"], dgx_a100.with_nodes(16), 256)
PIPES = {
    "GPipe": simulate(gpipe(8, 32)),
    "1F1B": simulate(one_f_one_b(8, 32)),
    "interleaved": simulate(interleaved(8, 32, 2)),
    "ZB-H1": simulate(zb_h1(8, 32)),
}
# Rows of 4 ranks for 8 experts, over 20 steps: one expert is chosen more and more.
EXPERT_STEPS = [
    [[5 + (e == 2) * n * (r + 1) for e in range(8)] for r in range(4)] for n in range(20)
]
EVEN_STEPS = [[[5] * 8] * 4] * 20
# What a server notes of 8 workers that never wait.
SERVED = SimpleNamespace(
    starts=[
        SimpleNamespace(worker=w, task=t, lead=0, waited=0) for t in range(20) for w in range(8)
    ],
    steps=[SimpleNamespace(worker=w, task=t, staleness=7) for t in range(20) for w in range(8)],
)
VIEWS: dict[str, Callable[[], View]] = {
    **{f"gantt of {name}": lambda t=t: gantt_chart(t, "a pipeline") for name, t in PIPES.items()},
    "gantt of a recording": lambda: gantt_chart(TRACE.timeline(), "a run", unit="s"),
    "token routing": lambda: token_routing(
        [[(word, len(word) % 4) for word in ["tokens", "on", "their", "way"]]] * 2, 4
    ),
    "expert groups": lambda: expert_groups(Mesh(data=4, expert=2), 4),
    "expert loads": lambda: expert_loads({"uneven": EXPERT_STEPS}, step=19, factor=1.25),
    "loss curves": lambda: loss_curves(
        {"a": ([1, 2, 3], [3, 2, 1]), "b": ([1.5, 3], [3, 2])},
        "time",
        "two runs",
        target=2,
        events={"a kill": 2.5},
    ),
    "replay": lambda: replayed(TRACE),
    "replicas": replicas,
    "overlap": lambda: overlap_step(layers(resnet101(), 0.5)),
    "ring steps": lambda: ring_steps(4),
    "traffic matrix": lambda: traffic_matrix(TRACE),
    "traffic bars": lambda: traffic_bars({"a run": TRACE.traffic()}),
    "cost curves": lambda: cost_curves({"line": lambda n: 1e-6 + n / 1e9}, title="one message"),
    "scaling curves": all_reduce_scaling,
    "memory bars": lambda: run_memory(MEMORY),
    "stacked bars": lambda: stacked_bars(
        {"bound 0": {"computing": 3, "waiting": 6}, "bound 8": {"computing": 4}},
        "tasks",
        "two runs",
    ),
    "memory curves": lambda: memory_curves(MEMORY, "a run"),
    "zero memory": zero_memory,
    "zero step": lambda: zero_step(ranks=8),
    "moving values": lambda: moving_values(*MOVED),
    "two schedules": lambda: pipeline_timeline("1F1B", "interleaved", p=8, m=32),
    "sharding": lambda: tensor_parallel_layer("MLP", 8),
    "plan": lambda: plan_view(PLANS),
    "mesh": chosen_mesh,
    "mesh as a cube": lambda: mesh_cube(Mesh(pipeline=4, data=4, tensor=4), 8),
    "context ring": context_ring,
    "step times": lambda: step_times({"one": [0.1, 0.2], "two": [0.3, 0.3]}, {"one": 1, "two": 2}),
    "ratio curves": lambda: ratio_curves([1, 2, 4], {"a": [3, 2, 1]}, "x", "y", "falling", 3.2),
    "bubble curves": lambda: bubble_curves(lambda p, m: (p - 1) / (m + p - 1)),
    "grouped bars": lambda: grouped_bars({"near": {"one": 1, "two": 2}}, "two series", "seconds"),
    "fp16 range": lambda: fp16_range({"a gradient": [0.0, 1e-9, 1e-3, 1.0]}),
    "key owners": lambda: key_owners({"ranges": ([0, 0, 1, 1], [0, 1, 1, 2])}),
    "chain replication": chain_replication,
    "server and ring": server_and_ring,
    "devices needed": lambda: devices_needed({"weights": {"parameters": 700e9}}, 80e9),
    "workers": lambda: parameter_server_timelines({"equal": (SERVED, lambda _: 10)}, "lead", 20),
    "loss scales": lambda: loss_scales([(16, True), (17, False), (16, True)]),
}
WIDGETS: dict[str, Callable[[], Explorer]] = {
    "ring steps": lambda: explore(ring_steps, ranks=[2, 3, 4]),
    "pipeline schedules": schedule_explorer,
    "memory of ZeRO": zero_explorer,
    "memory of ZeRO, with a run": lambda: zero_explorer({"mine": MEMORY}, 1000),
    "a step of ZeRO": zero_step_explorer,
    "moving values": lambda: moving_explorer({"one": MOVED, "two": (*MOVED[:3], NUMBERS)}),
    "sharding": sharding_explorer,
    "all-reduce on many devices": all_reduce_explorer,
    "links": lambda: replay_explorer(TRACE),
    "planner": plan_explorer,
    "mesh": mesh_explorer,
    "context ring": context_explorer,
    "experts": lambda: expert_explorer({"uneven": EXPERT_STEPS, "even": EVEN_STEPS}, every=10),
}
