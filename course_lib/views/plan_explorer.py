"""The planner under sliders: model, cluster, nodes, batch; memory and time of the best meshes."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_lib.simulate.cluster import CLUSTERS
from course_lib.simulate.planner import plan
from course_lib.simulate.plans import Plan, Plans
from course_lib.simulate.transformer import Transformer
from course_lib.views.explore import Explorer, explore
from course_lib.views.palette import ALARM, MEMORY, STEP
from course_lib.views.units import size_text, time_text
from course_lib.views.view import View, said

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
    figure = Figure(figsize=(10, 0.42 * len(shown) + 1.75))
    high = figure.get_figheight()
    bottom, tall = 1.0 / high, 1 - 1.6 / high
    memory = figure.add_axes((0.215, bottom, 0.33, tall))
    step = figure.add_axes((0.60, bottom, 0.36, tall))
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
    held = [[getattr(p.memory, part) for part in _HELD] for p in shown]
    fills = [MEMORY[part] for part in _HELD]
    _stack(memory, held, fills)
    capacity = plans.cluster.device.memory
    memory.axvline(capacity, color=ALARM, linestyle="--", linewidth=2)
    memory.set_xlim(0, 1.08 * capacity)
    memory.xaxis.set_major_formatter(lambda nbytes, _: size_text(nbytes) if nbytes else "0")
    memory.set_xlabel(f"bytes on a device of {size_text(capacity)}", fontsize=8)
    memory.set_yticks(range(len(shown)), [_name(p) for p in shown], fontsize=7)
    _stack(step, [[getattr(p.step, part) for part in STEP] for p in shown], list(STEP.values()))
    longest = max(p.step.total for p in shown)
    for place, p in enumerate(shown):
        step.text(
            p.step.total + 0.01 * longest, place, f"{p.flops_per_second / 1e12:.0f} TFLOP/s",
            va="center", fontsize=7,
        )  # fmt: skip
    step.set_xlim(0, 1.22 * longest)
    step.xaxis.set_major_formatter(lambda seconds, _: time_text(seconds) if seconds else "0")
    step.set_xlabel("a step; communication that nothing hides", fontsize=8)
    step.set_yticks([])
    for left, names, colors, columns in ((0.2, _HELD, MEMORY, 2), (0.595, [*STEP], STEP, 3)):
        handles = [
            Patch(facecolor=colors[n].color, hatch=colors[n].hatch, edgecolor="white", label=n)
            for n in names
        ]
        figure.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(left, 0), ncols=columns,
            fontsize=7, frameon=False,
        )  # fmt: skip
    return figure


def _name(plan: Plan) -> str:
    mesh = plan.mesh
    return (
        f"data {mesh.data} x tensor {mesh.tensor} x pipe {mesh.pipeline}\n"
        f"ZeRO {plan.zero}, recompute {plan.recompute}, b {plan.micro_batch}"
    )


def _stack(ax: Axes, rows: list[list[float]], fills: list) -> None:
    starts = [0.0] * len(rows)
    for part, fill in enumerate(fills):
        widths = [row[part] for row in rows]
        ax.barh(
            range(len(rows)), widths, 0.7, starts,
            color=fill.color, hatch=fill.hatch, edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="x", labelsize=7)
    ax.tick_params(axis="y", length=0)
    ax.locator_params(axis="x", nbins=5)
    ax.spines[["top", "right"]].set_visible(False)
