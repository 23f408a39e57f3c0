"""The planner under sliders: model, cluster, nodes, batch; memory and time of the best meshes."""

from collections.abc import Mapping, Sequence

from course_lib.simulate.cluster import CLUSTERS
from course_lib.simulate.models import MODELS
from course_lib.simulate.planner import plan
from course_lib.simulate.plans import Plan, Plans

from .charts import Field, round_numbers, stack
from .palette import MEMORY, STEP, Fill
from .svg_drawing import SMALL, Picture
from .units import size_text, time_text
from .view import View, said
from .widgets import Control, Explorer, explore

SHOWN = (
    *("GPT-2 1.5B", "7.5B", "Mixtral 8x7B", "LLaMA 65B", "GPT-3 175B", "Llama 3 405B"),
    *("DeepSeek-V3", "1T"),
)
_ROWS, _ROW = 8, 38  # meshes, and pixels for each
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
        height=440,
        model=list(SHOWN),
        cluster=Control(list(CLUSTERS), "kind of node"),
        nodes=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048],
        batch=Control(
            [64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096], "global batch", "sequences"
        ),
    )


# ------------------------------------------------------------------------------------------------


def _draw(plans: Plans, shown: list[Plan]) -> Picture:
    best = shown[0]
    days = best.days(300e9)
    picture = Picture(
        f"{plans.model.parameters / 1e9:.3g}B on {plans.cluster.size} × "
        f"{plans.cluster.device.name}, batch {plans.global_batch}: {best.mesh} is fastest, "
        f"300B tokens in {days:.3g} days"
    )
    capacity, longest = plans.cluster.device.memory, max(p.step.total for p in shown)
    top, high = picture.height + 30, _ROW * len(shown)
    memory = Field(picture, 250, top, 220, high, (0, 1.08 * capacity), (0, 1))
    step = Field(picture, 494, top, 332, high, (0, 1.34 * longest), (0, 1))
    picture.text(memory.left, top - 12, "memory of a device", SMALL, bold=True)
    picture.text(step.left, top - 12, "time of a step", SMALL, bold=True)
    picture.text(step.left + 100, top - 12, "messages: only what nothing hides", SMALL, ink="soft")
    steps = _seen(step, [plan.step for plan in shown], STEP)
    for index, each in enumerate(shown):
        y = top + _ROW * index
        picture.text(memory.left - 10, y + 11, _mesh(each), SMALL, "end")
        picture.text(memory.left - 10, y + 25, _options(each), SMALL, "end", ink="soft")
        held = {part: getattr(each.memory, part) for part in _HELD}
        times = {part: getattr(each.step, part) for part in steps}
        for field, parts, fills, text, limit in (
            (memory, held, MEMORY, size_text, 1.08 * capacity),
            (step, times, STEP, time_text, 1.34 * longest),
        ):
            pixels = (field.right - field.left) / limit
            end = stack(
                picture, parts, fills, field.left, y + 5, _ROW - 10, pixels, text, field.right
            )  # fmt: skip
        rate = f"{each.flops_per_second / 1e12:.0f} TFLOP/s"
        picture.text(end + 6, y + _ROW / 2, rate, SMALL)
    x = memory.across(capacity)
    picture.line([(x, top), (x, memory.bottom)], "alarm", 2, "6 4")
    memory.marks_below(round_numbers(0, 1.08 * capacity, 3, size_text))
    step.marks_below(round_numbers(0, 1.34 * longest, 5, time_text))
    picture.height += 4
    words = f"a device has {size_text(capacity)}"
    picture.text(x, picture.height + 2, words, SMALL, "middle", ink="alarm")
    picture.height += 10
    above = picture.height
    memories = {part: MEMORY[part] for part in _HELD}
    picture.key(_seen(memory, [plan.memory for plan in shown], memories), memory.left, 480)
    below, picture.height = picture.height, above
    picture.key(steps, step.left)
    picture.at_least(below)
    return picture


def _seen(field: Field, amounts: Sequence[object], fills: Mapping[str, Fill]) -> dict[str, Fill]:
    """The parts that have a pixel or more in some bar."""
    return {
        part: fill
        for part, fill in fills.items()
        if any(field.across(getattr(amount, part)) >= field.left + 1 for amount in amounts)
    }


def _mesh(plan: Plan) -> str:
    """The axes by name; all in short where one is used that few models need, for want of room."""
    mesh = plan.mesh
    if mesh.context == mesh.expert == 1:
        return f"pipeline {mesh.pipeline} x data {mesh.data} x tensor {mesh.tensor}"
    axes = ("pipeline", "data", "tensor", "context", "expert")
    sizes = [(axis[:3], getattr(mesh, axis)) for axis in axes]
    return " ".join(f"{axis} {size}" for axis, size in sizes if size > 1)


def _options(plan: Plan) -> str:
    again = f", recompute {plan.recompute}" if plan.recompute != "none" else ""
    zero = f"ZeRO-{plan.zero}" if plan.zero else "no ZeRO"
    return f"{zero}, microbatch {plan.micro_batch}{again}"
