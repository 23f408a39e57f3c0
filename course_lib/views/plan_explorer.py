"""The planner under sliders: model, cluster, nodes, batch; memory and time of the best meshes."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.simulate.cluster import CLUSTERS
from course_lib.simulate.planner import plan
from course_lib.simulate.plans import Plan, Plans
from course_lib.simulate.transformer import Transformer

from .areas import key, stack
from .explore import Explorer, explore
from .lettering import letter
from .palette import ALARM, INK, MEMORY, STEP, Fill
from .scales import round_numbers, scale_x, scale_y
from .units import size_text, time_text
from .view import View, said

MODELS = {
    "GPT-2 1.5B": Transformer(48, 1600, 25, seq=1024, vocab=50257),
    "7.5B": Transformer(36, 4096, 32, seq=2048, vocab=51200),
    "LLaMA 65B": Transformer(80, 8192, 64, seq=2048, vocab=32000),
    "GPT-3 175B": Transformer(96, 12288, 96, seq=2048, vocab=51200),
    "Llama 3 405B": Transformer(126, 16384, 128, seq=8192, vocab=128256),
    "1T": Transformer(128, 25600, 160, seq=2048, vocab=51200),
}
_ROWS = 8
_HELD = ("parameters", "gradients", "optimizer", "activations")


def plan_view(plans: Plans, rows: int = _ROWS) -> View:
    """The fastest plan of each of the first meshes: bytes on a device, and where a step goes.

    The text is the planner's own table. Where nothing fits, the picture says what would help.
    """
    if not plans.ranked:
        view = said("no plan fits. " + " ".join(plans.remedies))
        view.text = plans.text()
        return view
    return View(_draw(plans, [plans.of(mesh) for mesh in plans.meshes[:rows]]), plans.text(rows))


def planned(
    model: str = "GPT-3 175B",
    cluster: str = "DGX A100",
    nodes: int = 128,
    batch: int = 1536,
) -> View:
    """`plan_view` of a model and a cluster by name; batch: sequences in a step."""
    return plan_view(plan(MODELS[model], CLUSTERS[cluster].with_nodes(nodes), batch))


def plan_explorer() -> Explorer:
    """`planned` under sliders."""
    return explore(
        planned,
        model=list(MODELS),
        cluster=list(CLUSTERS),
        nodes=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048],
        batch=[64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096],
    )


# ------------------------------------------------------------------------------------------------


def _draw(plans: Plans, shown: list[Plan]) -> Figure:
    high = 0.41 * len(shown) + 1.3
    figure = Figure(figsize=(9.3, high))
    bottom, tall = 0.9 / high, 1 - 1.3 / high
    memory = figure.add_axes((0.225, bottom, 0.335, tall))
    step = figure.add_axes((0.61, bottom, 0.38, tall))
    best, days = shown[0], shown[0].days(300e9)
    figure.text(
        0.01,
        1 - 0.2 / high,
        f"{plans.model.parameters / 1e9:.3g}B on {plans.cluster.size} x {plans.cluster.device.name}"
        f", batch {plans.global_batch}: {best.mesh} is fastest, 300B tokens in {days:.3g} days",
        fontsize=9,
        weight="bold",
        va="center",
    )
    capacity, longest = plans.cluster.device.memory, max(p.step.total for p in shown)
    held = {part: [getattr(p.memory, part) for p in shown] for part in _HELD}
    _bars(
        memory,
        held,
        MEMORY,
        1.08 * capacity,
        size_text,
        f"bytes on a device of {size_text(capacity)}",
    )
    memory.axvline(capacity, color=ALARM, linestyle="--", linewidth=2)
    scale_y(memory, {place - 0.17: _mesh(p) for place, p in enumerate(shown)}, ticks=False)
    scale_y(memory, {place + 0.17: _options(p) for place, p in enumerate(shown)}, ticks=False)
    times = {part: [getattr(p.step, part) for p in shown] for part in STEP}
    _bars(step, times, STEP, 1.22 * longest, time_text, "a step; communication that nothing hides")
    rates = [
        (p.step.total + 0.01 * longest, place, f"{p.flops_per_second / 1e12:.0f} TFLOP/s", INK)
        for place, p in enumerate(shown)
    ]
    letter(step, rates, align="left")
    key(figure, {part: MEMORY[part] for part in _HELD}, left=2.0, columns=2, size=7)
    key(figure, STEP, left=5.6, columns=3, size=7)
    return figure


def _bars(
    ax: Axes,
    parts: Mapping[str, Sequence[float]],
    fills: Mapping[str, Fill],
    limit: float,
    text: Callable[[float], str],
    label: str,
) -> None:
    stack(ax, parts, fills, thick=0.7)
    ax.set(xlim=(0, limit), ylim=(len(next(iter(parts.values()))) - 0.4, -0.6))
    ax.spines[["top", "right"]].set_visible(False)
    scale_x(ax, round_numbers(0, limit, 5, text), label)
    scale_y(ax, {})


def _mesh(plan: Plan) -> str:
    mesh = plan.mesh
    return f"data {mesh.data} x tensor {mesh.tensor} x pipe {mesh.pipeline}"


def _options(plan: Plan) -> str:
    return f"ZeRO {plan.zero}, recompute {plan.recompute}, b {plan.micro_batch}"
