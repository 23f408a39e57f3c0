"""On a rank: train with an answer that partitions the optimizer, and note what it holds.

The answer gets a maker of optimizers that remembers what it made. So the check can see every
optimizer: how many bytes of state it has, and which gradients it steps with.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.checks import compare_tensors, reference
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.exercise import Case, Finding, Observation
from course_lib.checks.exercises._training import (
    STEPS,
    Net,
    OneProcess,
    held_bytes,
    make_optimizer,
    trainable,
)
from course_lib.checks.profiler_labels import BACKWARD
from course_lib.checks.reference import moved
from course_lib.observe import Trace
from course_lib.text import counted

TRAINING = "check: training"  # the span around all steps: what came before is preparation


class Spy:
    """Makes optimizers of one kind, and looks at each when it steps.

    squares: for each step, the sum of squares of the gradients that it was taken with.
    began: the parameters that were handed in, as they were then.
    """

    def __init__(self, kind: str):
        self.kind = kind
        self.optimizers: list[torch.optim.Optimizer] = []
        self.began: list[list[float]] = []
        self.squares: list[float] = []

    def __call__(self, parameters: Any) -> torch.optim.Optimizer:
        optimizer = make_optimizer(self.kind, parameters)
        optimizer.register_step_pre_hook(self._look)
        self.optimizers.append(optimizer)
        # No tensors: what comes to be while the answer runs counts as its own.
        self.began += [p.detach().reshape(-1).tolist() for p in _parameters([optimizer])]
        return optimizer

    def _look(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        gradients = [p.grad for p in _parameters([optimizer]) if p.grad is not None]
        self.squares.append(sum(float((g.double() ** 2).sum()) for g in gradients))

    def state_bytes(self) -> int:
        """Momentum, and Adam's two; the step counters, one number each, are left out."""
        states = [s for o in self.optimizers for s in o.state.values()]
        found = [t for s in states for t in s.values() if isinstance(t, torch.Tensor)]
        return held_bytes(t for t in found if t.dim() > 0)

    def parameters(self) -> list[nn.Parameter]:
        return _parameters(self.optimizers)


def _parameters(optimizers: Iterable[torch.optim.Optimizer]) -> list[nn.Parameter]:
    return [p for o in optimizers for group in o.param_groups for p in group["params"]]


# ---------------------------------------------------------------------------------------------


def train_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    """`answer(model, make_optimizer)` returns step(), to be called after each backward."""
    rank, data = dist.get_rank(), case.data
    model = Net(data["options"])
    model.load_state_dict(data["states"][rank])
    spy, own = Spy(data["kind"]), trainable(model)
    peaks: list[int] = []
    for parameter in own:  # before the answer's own hooks, so each sees its gradient first
        parameter.register_post_accumulate_grad_hook(
            lambda _: peaks.append(held_bytes(p.grad for p in own))
        )
    step = answer(model, spy)
    if not callable(step):
        return {"step": plain(step)}
    started = {name: plain(p) for name, p in model.named_parameters()}
    made = len(spy.optimizers)
    after, left, parts, early = [], [], [], 0
    with record_function(TRAINING):
        for x, y in zip(data["x"], data["y"], strict=True):
            model.zero_grad()
            loss = nn.functional.mse_loss(model(x[rank]), y[rank])
            taken = len(spy.squares)
            with record_function(BACKWARD):
                loss.backward()
            early += len(spy.squares) - taken
            left.append(held_bytes(p.grad for p in own))
            parts.append(held_bytes(p.grad for p in spy.parameters()))
            step()
            after.append({name: plain(p) for name, p in model.named_parameters()})
    return {
        "started": started,
        "early": early,
        "too_early": any(p._backward_hooks for p in own),
        "began": spy.began,
        "more": len(spy.optimizers) - made,
        "after": after,
        "peak": max(peaks),
        "left": max(left),
        "parts": max(parts),
        "squares": spy.squares,
        "state": spy.state_bytes(),
    }


# ---------------------------------------------------------------------------------------------


def during_training(observation: Observation) -> Observation:
    """The observation without what was communicated before the first step."""
    events = [e for e in observation.trace.events if TRAINING in e.spans]
    return Observation(observation.values, Trace(observation.trace.world_size, events))


def wrong_training(case: Case, observation: Observation) -> Finding | None:
    """Every parameter after every step, on every rank, is that of one process."""
    for rank, seen in enumerate(observation.values):
        if "step" in seen:
            kind = kind_of(seen["step"])
            return Finding(
                f"your function returned {kind}: return the function step itself, without calling "
                "it",
                rank,
                expected="a function",
                got=kind,
            )
    wanted = OneProcess(case.data, case.data["kind"])
    for rank, seen in enumerate(observation.values):
        for name, want in wanted.start.items():
            looks = {"the rank's own start": case.data["states"][rank][name]} if rank else {}
            if finding := compare_tensors.mismatch(seen["started"][name], moved(want), rank, looks):
                likely = (
                    f"before the first step {name!r} is not rank 0's ({finding.likely}): broadcast "
                    "every parameter, frozen ones too"
                )
                return Finding(likely, rank, expected=finding.expected, got=finding.got)
    for rank, seen in enumerate(observation.values):
        if seen["early"]:
            return Finding(
                "an optimizer stepped inside backward: update in step(), so that whoever trains "
                "can still clip the gradients, or leave the step out",
                rank,
                expected="no step of an optimizer before step() is called",
                got=f"{counted(seen['early'], 'step')} of an optimizer inside backward",
            )
    if finding := _scaled(case, observation, wanted):
        return finding
    for step in range(STEPS):
        before = wanted.after[step - 1] if step else wanted.start
        for rank, seen in enumerate(observation.values):
            for name, want in wanted.after[step].items():
                looks = {"what it was before this step, so nobody updated it": before[name]}
                got = seen["after"][step][name]
                if finding := compare_tensors.mismatch(got, reference.computed(want), rank, looks):
                    known = _known_mistake(case, observation, wanted, step)
                    title = f"step {step}, {name!r} after it: {known or finding.likely}"
                    return Finding(title, rank, expected=finding.expected, got=finding.got)
    return None


def _known_mistake(case: Case, observation: Observation, wanted: OneProcess, step: int) -> str:
    """What was seen beside the values and leads to wrong ones; "" if nothing was."""
    if step and any(seen["more"] for seen in observation.values):
        return (
            "make_optimizer was called again in step(), and a new optimizer knows nothing of the "
            "steps before: make it once"
        )
    if step or case.world_size == 1:
        return ""
    began = [seen["began"] for seen in observation.values]
    return _wrong_shard(case, wanted, began) or _end_left_out(case, observation, wanted)


def _wrong_shard(case: Case, wanted: OneProcess, began: list[list[list[float]]]) -> str:
    """Where each rank's optimizer began with one tensor, a part of the row."""
    n = case.world_size
    parts = _row(case, wanted.start, n).chunk(n)
    for rank, shards in enumerate(began):
        shard = torch.tensor(shards[0] if len(shards) == 1 else [], dtype=torch.float64)
        if torch.equal(shard, parts[rank]):
            continue
        own = _row(case, case.data["states"][rank], n).chunk(n)
        if torch.equal(shard, own[rank]):
            return (
                f"the shard of rank {rank} is of its own start: cut it out after the ranks were "
                "made equal"
            )
        for other, part in enumerate(parts):
            if torch.equal(shard, part):
                return f"the shard of rank {rank} is the part of rank {other}"
    return ""


def _end_left_out(case: Case, observation: Observation, wanted: OneProcess) -> str:
    """Where n does not divide the row, and what is behind the last equal part stayed."""
    n, row = case.world_size, _row(case, wanted.after[0], 1)
    whole = len(row) // n * n
    got = _row(case, observation.values[0]["after"][0], 1)
    before = _row(case, wanted.start, 1)
    if whole == len(row) or not torch.equal(got[whole:], before[whole:]):
        return ""
    if compare_tensors.mismatch(got[:whole], reference.computed(row[:whole]), 0):
        return ""
    return (
        f"the last of all elements were not updated: {n} ranks do not divide {len(row)}, so fill "
        "the row up with zeros"
    )


def _row(case: Case, values: dict[str, torch.Tensor], n: int) -> torch.Tensor:
    """All elements that learn, one after the other, and zeros up to a multiple of n."""
    learning = [k for k, p in Net(case.data["options"]).named_parameters() if p.requires_grad]
    row = torch.cat([values[name].reshape(-1) for name in learning])
    return nn.functional.pad(row, (0, -len(row) % n))


def _scaled(case: Case, observation: Observation, wanted: OneProcess) -> Finding | None:
    """Gradients that are a multiple of the right ones; Adam would hide it."""
    n = case.world_size
    squares = [seen["squares"] for seen in observation.values]
    if n == 1 or not all(squares):
        return None
    ratio = (sum(s[0] for s in squares) / wanted.squares[0]) ** 0.5
    if abs(ratio - n) < 1e-6:
        likely = f"the optimizers step with {n} times the gradient: a sum, not the average"
        return Finding(f"{likely}. (Adam hides it: it does not see how long a gradient is.)")
    if abs(ratio * n - 1) < 1e-6:
        return Finding(f"the optimizers step with 1/{n} of the gradient: divided twice?")
    return None
