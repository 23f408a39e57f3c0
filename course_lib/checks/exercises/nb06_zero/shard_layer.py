"""ZeRO-3, one layer: the parameters are there only while somebody needs them.

shard_layer(layer) -> (shard, gather, release)
    shard: a parameter with this rank's n-th of the layer, flat and padded. gather() starts the
    all-gather and returns its handle; after wait() the layer's parameters have their values.
    release() gives their memory back, in such a way that a backward pass still works after the
    next gather.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.profiler import record_function

from course_lib.checks import compare_tensors, reference, traffic_limits
from course_lib.checks.call_answer import kind_of
from course_lib.checks.contract import Contract, Waits
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.profiler_labels import label_of
from course_lib.checks.rank_inputs import along
from course_lib.checks.reference import gradient, moved
from course_lib.text import counted

from ._spying import TRAINING, during_training, held_bytes

_SIZE = 8  # bytes of a float64


_ASKED = "a tuple of three is expected: the shard, and the functions gather and release"


_GATHER = label_of("gather")


def _layer(case: Case) -> nn.Linear:
    inputs, outputs = case.data["sizes"]
    layer = nn.Linear(inputs, outputs).double()
    layer.load_state_dict(case.data["state"])
    layer.bias.requires_grad_(not case.data["frozen"])
    return layer


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, 2, (5, 3)),
        _case(rng, 3, (4, 5)),
        _case(rng, 4, (6, 3), frozen=True),
        _case(rng, 1, (3, 2)),
        _case(rng, 5, (1, 1)),
    ]


def _case(
    rng: random.Random, world_size: int, sizes: tuple[int, int], frozen: bool = False
) -> Case:
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    inputs, outputs = sizes
    layer = nn.Linear(inputs, outputs).state_dict()
    state = {
        name: torch.randn(t.shape, generator=generator, dtype=torch.float64)
        for name, t in layer.items()
    }
    x = torch.randn(world_size, 2, inputs, generator=generator, dtype=torch.float64)
    count = (inputs + 1) * outputs
    ranks = f"{counted(world_size, 'rank')}"
    label = f"a layer of {count} elements on {ranks}" + (", its bias frozen" if frozen else "")
    data = {"sizes": sizes, "state": state, "frozen": frozen, "x": x}
    return Case(world_size, label, data)


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank = dist.get_rank()
    layer = _layer(case)
    before = [StorageWeakRef(p.untyped_storage()) for p in layer.parameters()]
    returned = answer(layer)
    if not (isinstance(returned, tuple | list) and len(returned) == 3):
        return {"unfit": kind_of(returned)}
    shard, gather, release = returned
    if not isinstance(shard, torch.Tensor) or not callable(gather) or not callable(release):
        return {"unfit": f"({', '.join(kind_of(part) for part in returned)})"}
    if shard.untyped_storage().nbytes() < shard.numel() * shard.element_size():
        return {"gone": True}  # to read it would be the end of this process
    now = [StorageWeakRef(p.untyped_storage()) for p in layer.parameters()]
    seen: dict[str, Any] = {
        "unmoved": now == before,
        "leaf": shard.requires_grad and shard.is_leaf,
        "shard": shard.detach().clone(),
        "shard_bytes": held_bytes([shard]),
        "at_rest": held_bytes(layer.parameters()),
    }
    with record_function(TRAINING):
        with record_function(_GATHER):
            work = gather()
        if work is None:
            raise ValueError(
                "gather() returned nothing. Pass async_op=True and return the handle, so that the "
                "caller can compute meanwhile, and wait"
            )
        if not hasattr(work, "wait"):
            return {**seen, "handle": kind_of(work)}
        work.wait()
        if empty := _without_memory(layer):
            return {**seen, "empty": empty}
        seen["gathered"] = _copies(layer)
        seen["full"] = held_bytes(layer.parameters())
        # What autograd saves for backward is this storage, whatever the parameter becomes.
        saved = [p.untyped_storage() for p in layer.parameters()]
        x = case.data["x"][rank].clone().requires_grad_()
        y = layer(x)
        release()
        seen["released"] = held_bytes(layer.parameters())
        seen["saved"] = sum({s._cdata: s.nbytes() for s in saved}.values())
        del saved
        gather().wait()
        try:
            y.sum().backward()
        except RuntimeError as problem:
            return {**seen, "backward": str(problem).split("\n")[0]}
        seen["weight_grad"], seen["x_grad"] = (
            gradient(layer.weight).clone(),
            gradient(x).clone(),
        )
        release()
        with torch.no_grad():  # as an optimizer does
            shard.mul_(2).add_(rank)
        gather().wait()
        seen["updated"] = _copies(layer)
        release()
    return seen


def _without_memory(layer: nn.Module) -> str:
    """The first parameter that nobody may read; "" if all have their memory."""
    for name, p in layer.named_parameters():
        if p.untyped_storage().nbytes() < p.numel() * p.element_size():
            return name
    return ""


def _copies(layer: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in layer.named_parameters()}


def _held(case: Case, rank: int) -> int:
    """Bytes that may live after a gather: the shard, and the layer with its padding."""
    flat = _flat(case)
    return flat[rank].nbytes + flat.nbytes


def _flat(case: Case) -> torch.Tensor:
    """All elements of the layer with padding, (n, elements of a shard)."""
    flat = torch.cat([t.reshape(-1) for t in case.data["state"].values()])
    flat = nn.functional.pad(flat, (0, -flat.numel() % case.world_size))
    return flat.view(case.world_size, -1)


def _judge(case: Case, observation: Observation) -> Finding | None:
    for right in (_form, _gathered, _memory, _use):
        for rank, seen in enumerate(observation.values):
            if finding := right(case, seen, rank):
                return finding
    part = _flat(case).shape[1]
    count = 3 * (case.world_size - 1) * part * _SIZE
    for rank in range(case.world_size):
        rule = "a gather brings each rank the parts of the others, and the rank has its own"
        if finding := traffic_limits.sent(during_training(observation), rank, count, count, rule):
            return finding
    return None


def _form(case: Case, seen: dict[str, Any], rank: int) -> Finding | None:
    if "unfit" in seen:
        return Finding(_ASKED, rank, expected="(shard, gather, release)", got=seen["unfit"])
    if "gone" in seen:
        return Finding(
            "the shard is a view into the memory that release takes away, and has lost its numbers "
            "with it: clone it, full.chunk(n)[rank].clone()",
            rank,
        )
    if not seen["leaf"]:
        return Finding(
            "the optimizer must be able to train the shard: make it an nn.Parameter", rank
        )
    flat = _flat(case)
    looks = {f"the shard of rank {r}": flat[r] for r in range(case.world_size) if r != rank}
    if finding := compare_tensors.mismatch(seen["shard"], moved(flat[rank]), rank, looks):
        likely = f"the shard at the start: {finding.likely}"
        return Finding(likely, rank, expected=finding.expected, got=finding.got)
    if "handle" in seen:
        return Finding(
            f"gather returned {seen['handle']}: pass async_op=True and return the handle, so that "
            "the caller can compute meanwhile",
            rank,
            expected="a handle with wait()",
            got=seen["handle"],
        )
    return None


def _gathered(case: Case, seen: dict[str, Any], rank: int) -> Finding | None:
    if "empty" not in seen:
        return None
    return Finding(
        f"after gather and its wait() {seen['empty']!r} still has no memory: gather gets back what "
        "release took away, full.untyped_storage().resize_(nbytes), and gathers into full itself",
        rank,
    )


def _memory(case: Case, seen: dict[str, Any], rank: int) -> Finding | None:
    flat = _flat(case)
    if seen["shard_bytes"] > flat[rank].nbytes:
        return Finding(
            "the shard is a view, and keeps the whole layer in memory: clone it",
            rank,
            expected=f"{flat[rank].nbytes} bytes behind the shard",
            got=f"{seen['shard_bytes']} bytes",
        )
    whole = {"at_rest": "before the first gather", "released": "after release"}
    for moment, words in whole.items():
        if seen[moment] and seen["unmoved"]:
            return Finding(
                f"{words} the parameters still take memory: they lie where they did, not in "
                "the tensor that is gathered and released. point_into(full, parameters) puts them "
                "there",
                rank,
                expected="0 bytes in the layer's parameters",
                got=f"{seen[moment]} bytes",
            )
        if seen[moment]:
            return Finding(
                f"{words} the parameters still take memory: give it back with "
                "untyped_storage().resize_(0)",
                rank,
                expected="0 bytes in the layer's parameters",
                got=f"{seen[moment]} bytes",
            )
    return None


def _use(case: Case, seen: dict[str, Any], rank: int) -> Finding | None:
    state, flat = case.data["state"], _flat(case)
    for name, got in seen["gathered"].items():
        if finding := compare_tensors.mismatch(got, moved(state[name]), rank):
            likely = f"{name!r} after the first gather: {finding.likely}"
            return Finding(likely, rank, expected=finding.expected, got=finding.got)
    if seen["full"] > flat.nbytes:
        return Finding(
            "gathered, the layer takes more memory than its elements with padding: let the "
            "parameters be views into the tensor that is gathered",
            rank,
            expected=f"{flat.nbytes} bytes",
            got=f"{seen['full']} bytes",
        )
    if seen["saved"]:
        return Finding(
            "the parameters were given other memory, but autograd has saved the old one for "
            "backward, so it stays: resize the storage itself to 0, and back in gather",
            rank,
            expected="0 bytes kept by the graph after release",
            got=f"{seen['saved']} bytes",
        )
    if "backward" in seen:
        return Finding(f"backward after the second gather failed: {seen['backward']}", rank)
    x = case.data["x"][rank]
    wants = {
        "weight_grad": x.sum(0).expand_as(state["weight"]),
        "x_grad": state["weight"].sum(0).expand_as(x),
    }
    for what, want in wants.items():
        if finding := compare_tensors.mismatch(seen[what], reference.computed(want.clone()), rank):
            name = "the weight" if what == "weight_grad" else "the layer's input"
            likely = (
                f"the gradient of {name}, from a backward after the second gather: {finding.likely}"
            )
            return Finding(likely, rank, expected=finding.expected, got=finding.got)
    updated = (2 * flat + torch.arange(case.world_size)[:, None]).view(-1)
    start = 0
    for name, before in state.items():
        want = updated[start : start + before.numel()].view_as(before)
        start += before.numel()
        looks = {"what it was before the shards changed": before}
        if finding := compare_tensors.mismatch(
            seen["updated"][name], reference.computed(want), rank, looks
        ):
            likely = f"{name!r}, gathered after the shards were updated: {finding.likely}"
            return Finding(likely, rank, expected=finding.expected, got=finding.got)
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(layer)",
    cases=_cases,
    on_rank=_on_rank,
    own={"x": along(0)},
    judge=_judge,
    hints=(
        """
        One flat tensor, full, has all parameters of the layer; they become views into it. gather
        fills it, release takes its memory away. The tensor object itself stays all the time.
        """,
        """
        full.untyped_storage().resize_(0) frees the memory, resize_(size) gets it back, with size
        in bytes, noted before. The graph has saved views of the same storage, so it sees what the
        next gather writes. The shard must be a clone: a view would lose its memory too.
        """,
        """
        full = flatten(parameters, n); shard = nn.Parameter(full.chunk(n)[rank].clone());
        point_into(full, parameters). gather: full.untyped_storage().resize_(size), then return
        dist.all_gather(list(full.chunk(n)), shard.detach(), async_op=True). release: resize_(0).
        Call release() once before you return the three.
        """,
    ),
    passed="a layer takes an n-th of its memory at rest, and backward still works",
    contract=Contract(
        moves=("layer",),
        allowed=frozenset({"all_gather"}),
        holds="at rest a rank holds its shard, and after a gather the layer besides",
        held=_held,
        waits=(Waits(op="all_gather", outlasts="gather"),),
    ),
    points=2,
)
