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

from course_lib.checks import compare, reference
from course_lib.checks.answers import kind_of, plain
from course_lib.checks.exercise import Case, Finding, Observation
from course_lib.checks.exercises._training import (
    STEPS,
    Net,
    OneProcess,
    held_bytes,
    make_optimizer,
    trainable,
)
from course_lib.checks.marks import BACKWARD
from course_lib.checks.reference import moved
from course_lib.observe import Trace

TRAINING = "check: training"  # the span around all steps: what came before is preparation


class Spy:
    """Makes optimizers of one kind, and looks at each when it steps.

    squares: for each step, the sum of squares of the gradients that it was taken with.
    """

    def __init__(self, kind: str):
        self.kind = kind
        self.optimizers: list[torch.optim.Optimizer] = []
        self.squares: list[float] = []

    def __call__(self, parameters: Any) -> torch.optim.Optimizer:
        optimizer = make_optimizer(self.kind, parameters)
        optimizer.register_step_pre_hook(self._look)
        self.optimizers.append(optimizer)
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
    after, left, parts = [], [], []
    with record_function(TRAINING):
        for x, y in zip(data["x"], data["y"], strict=True):
            model.zero_grad()
            loss = nn.functional.mse_loss(model(x[rank]), y[rank])
            with record_function(BACKWARD):
                loss.backward()
            left.append(held_bytes(p.grad for p in own))
            parts.append(held_bytes(p.grad for p in spy.parameters()))
            step()
            after.append({name: plain(p) for name, p in model.named_parameters()})
    return {
        "started": started,
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
            if finding := compare.mismatch(seen["started"][name], moved(want), rank, looks):
                likely = (
                    f"before the first step {name!r} is not rank 0's ({finding.likely}): broadcast "
                    "every parameter, frozen ones too"
                )
                return Finding(likely, rank, expected=finding.expected, got=finding.got)
    if finding := _scaled(case, observation, wanted):
        return finding
    for step in range(STEPS):
        before = wanted.after[step - 1] if step else wanted.start
        for rank, seen in enumerate(observation.values):
            for name, want in wanted.after[step].items():
                looks = {"what it was before this step, so nobody updated it": before[name]}
                got = seen["after"][step][name]
                if finding := compare.mismatch(got, reference.computed(want), rank, looks):
                    title = f"step {step}, {name!r} after it: {finding.likely}"
                    return Finding(title, rank, expected=finding.expected, got=finding.got)
    return None


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
