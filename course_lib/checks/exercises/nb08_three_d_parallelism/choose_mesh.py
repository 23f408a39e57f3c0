"""The least model parallelism that fits.

choose_mesh(model, cluster) -> {"pipeline": p, "data": d, "tensor": t}
    model: {"parameters", "layers", "heads"}; cluster: {"devices", "per_node", "memory"}, in bytes.
    With ZeRO-1, model states take 4 + 12/d bytes per parameter that a device works with, and may
    fill 60 % of its memory. t divides the heads and the devices of a node, p divides the layers,
    and all devices are used. At least one mesh fits. Of those that fit, the one with the smallest
    t * p, and of these with the largest t: Narayanan et al., SC 2021, takeaways 1 and 2.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import whole
from course_lib.simulate.models import MODELS

_SHARE = 0.6


_CASES = 13


_AXES = ("pipeline", "data", "tensor")


Mesh = tuple[int, int, int]  # pipeline, data, tensor


_NAMES = ("1.7B", "7.5B", "18.4B", "76.1B", "GPT-3 175B", "MT-NLG 530B", "1T")


def _cases(rng: random.Random) -> list[Case]:
    cases = [
        _case("1.7B", 32, 8, 80e9),
        _case("18.4B", 256, 8, 80e9),
        _case("18.4B", 240, 8, 32e9),
        _case("18.4B", 240, 8, 24e9),  # a tensor axis of 6 would be the least that fits
        _case("GPT-3 175B", 1024, 8, 80e9),
        _case("GPT-3 175B", 960, 6, 141e9),  # tensor 6 x pipeline 2, where others take 2 x 6
        _case("MT-NLG 530B", 2520, 8, 80e9),
        _thick(rng.uniform(57.8, 58.5)),
        _thick(rng.uniform(93.5, 95.9)),
    ]
    while len(cases) < _CASES:
        per_node, memory = rng.choice((4, 6, 8)), rng.choice((40e9, 80e9, 141e9))
        devices = per_node * rng.choice((60, 96, 120, 240))
        case = _case(rng.choice(_NAMES), devices, per_node, memory)
        if _fitting(case):
            cases.append(case)
    return cases


def _thick(billions: float) -> Case:
    """Three ranks and a stage for every layer: no power of two divides its heads.

    Close to where half as many devices, or these, no longer hold it, so that every byte counts.
    """
    model = {"parameters": round(billions, 1) * 1e9, "layers": 4, "heads": 9}
    cluster = {"devices": 72, "per_node": 6, "memory": 80e9}
    label = f"{model['parameters'] / 1e9:g}B in 4 layers of 9 heads on 72 devices, 6 in a node"
    return _asked(label, model, cluster)


def _case(name: str, devices: int, per_node: int, memory: float) -> Case:
    label = f"{name} on {devices} devices of {memory / 1e9:g} GB, {per_node} in a node"
    cluster = {"devices": devices, "per_node": per_node, "memory": memory}
    model = {key: getattr(MODELS[name], key) for key in ("parameters", "layers", "heads")}
    return _asked(label, model, cluster)


def _asked(label: str, model: dict[str, Any], cluster: dict[str, Any]) -> Case:
    data = {"model": model, "cluster": cluster}
    case = Case(1, label, data)
    if not (fitting := _fitting(case)):
        return case
    # What an answer raises that found no mesh, and goes on as if it had one.
    clue = Clue(
        f"a mesh that fits is {_shown(min(fitting, key=_order))}; does your function skip it?",
        "NoneType",
        "empty",
        "IndexError",
    )
    return replace(case, clue=clue)


def _order(mesh: Mesh) -> tuple[int, int]:
    """The least model parallelism first, and of it the most along the tensor axis."""
    pipeline, _, tensor = mesh
    return pipeline * tensor, -tensor


def _on_rank(answer: Callable, case: Case) -> Any:
    return plain(answer(dict(case.data["model"]), dict(case.data["cluster"])))


def _bytes(case: Case, mesh: Mesh) -> float:
    pipeline, data, tensor = mesh
    return case.data["model"]["parameters"] / (pipeline * tensor) * (4 + 12 / data)


def _problem(case: Case, mesh: Mesh) -> str:
    """Why this mesh is not possible; "" if it is."""
    model, cluster = case.data["model"], case.data["cluster"]
    pipeline, data, tensor = mesh
    if min(mesh) < 1 or pipeline * data * tensor != cluster["devices"]:
        return f"{pipeline} x {data} x {tensor} is not {cluster['devices']} devices"
    if tensor > cluster["per_node"]:
        return f"a tensor axis of {tensor} leaves the node of {cluster['per_node']}"
    if cluster["per_node"] % tensor:
        return (
            f"a tensor axis of {tensor} does not divide a node of {cluster['per_node']}: some of "
            "its groups lie on two nodes"
        )
    if model["heads"] % tensor:
        return f"{model['heads']} heads cannot be split evenly over a tensor axis of {tensor}"
    if model["layers"] % pipeline:
        return (
            f"{model['layers']} layers cannot be split evenly along a pipeline axis of {pipeline}"
        )
    room, need = _SHARE * cluster["memory"], _bytes(case, mesh)
    if need > room:
        return (
            f"it does not fit: {need / 1e9:.1f} GB of model states, and {room / 1e9:.1f} GB are "
            "for them"
        )
    return ""


def _fitting(case: Case) -> list[Mesh]:
    devices = case.data["cluster"]["devices"]
    meshes = (
        (pipeline, devices // (pipeline * tensor), tensor)
        for tensor in range(1, case.data["cluster"]["per_node"] + 1)
        for pipeline in range(1, case.data["model"]["layers"] + 1)
        if devices % (pipeline * tensor) == 0
    )
    return [mesh for mesh in meshes if not _problem(case, mesh)]


def _judge(case: Case, observation: Observation) -> Finding | None:
    answered = observation.values[0]
    best = min(_fitting(case), key=_order)
    if not isinstance(answered, dict) or set(answered) != set(_AXES):
        return Finding(
            "the answer is a dict with the sizes of pipeline, data and tensor",
            input=case.label,
            got=kind_of(answered),
        )
    pipeline, data, tensor = (whole(answered[axis]) for axis in _AXES)
    if pipeline is None or data is None or tensor is None:
        return Finding(
            "sizes are whole numbers: use // to divide", input=case.label, got=f"{answered}"
        )
    mesh = (pipeline, data, tensor)
    if mesh == best:
        return None
    if problem := _problem(case, mesh):
        likely = problem
    elif pipeline * tensor > best[0] * best[2]:
        likely = (
            f"it fits, but less model parallelism fits too: {best[0] * best[2]} devices per "
            f"replica instead of {pipeline * tensor}, and so more replicas"
        )
    else:
        likely = (
            "it fits with as few devices per replica, but inside a node the tensor axis comes "
            "first: it has no bubble"
        )
    return Finding(likely, input=case.label, expected=_shown(best), got=_shown(mesh))


def _shown(mesh: Mesh) -> str:
    return ", ".join(f"{axis} {size}" for axis, size in zip(_AXES, mesh, strict=True))


EXERCISE = Exercise(
    module=__name__,
    signature="(model, cluster)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        There are not many meshes: try them all. What makes one impossible, and in which order are
        the possible ones better?
        """,
        """
        Two loops, over the tensor and the pipeline axis; data is what is left of the devices. Skip
        what does not divide (tensor: the heads and per_node; pipeline: the layers; their product:
        the devices), then what does not fit. Keep the best by the pair (t * p, -t).
        """,
        """
        fits = parameters / (t * p) * (4 + 12 / d) <= 0.6 * memory. Collect ((t * p, -t), mesh) for
        all that fit and take the smallest with min().
        """,
    ),
    passed="the smallest replica that fits, tensor axis first, as Megatron-LM's rule has it",
    contract=Contract(
        takes="models and clusters for which at least one mesh fits", allowed=frozenset()
    ),
)
