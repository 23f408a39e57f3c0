"""What the exercises master_weights and offload share."""

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_lib.checks.answers import kind_of, plain
from course_lib.checks.exercise import Case, Finding
from course_lib.checks.exercises._training import (
    ADAM,
    FROZEN,
    MOMENTUM,
    TIED,
    Net,
    held_bytes,
    trainable,
)
from course_lib.checks.glimpse import glimpse

STEPS = 60


RATES = {ADAM: 2e-4, MOMENTUM: 2e-5}  # an update is a small part of what bfloat16 can tell apart


ULP = 2.0**-7  # the distance of neighbours in bfloat16, relative, at most


def cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, MOMENTUM, []),
        _case(rng, ADAM, []),
        _case(rng, ADAM, [FROZEN, TIED]),
    ]


def _case(rng: random.Random, kind: str, options: list[str]) -> Case:
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    state = {
        name: (torch.rand(t.shape, generator=generator) + 0.5).bfloat16()
        for name, t in Net(options).state_dict().items()
    }
    if TIED in options:
        state["again.weight"] = state["middle.weight"]
    data = {"options": options, "kind": kind, "state": state}
    names = [name for name, p in Net(options).named_parameters() if p.requires_grad]
    data["grads"] = {
        name: (torch.rand(state[name].shape, generator=generator) + 0.5).bfloat16()
        for name in names
    }
    traits = {FROZEN: "a frozen parameter", TIED: "a shared weight"}
    having = f", with {' and '.join(traits[option] for option in options)}" if options else ""
    clue = "a frozen parameter has no gradient: take those with requires_grad" if options else ""
    return Case(1, f"{STEPS} small steps of {kind} in bfloat16{having}", data, clue)


def _model(case: Case) -> Net:
    model = Net(case.data["options"]).bfloat16()
    model.load_state_dict(case.data["state"])
    return model


class Maker:
    """Makes optimizers with the case's learning rate, and remembers their parameters."""

    def __init__(self, kind: str):
        self.kind = kind
        self.optimizers: list[torch.optim.Optimizer] = []

    def __call__(self, parameters: Any) -> torch.optim.Optimizer:
        rate = RATES[self.kind]
        if self.kind == ADAM:
            optimizer: torch.optim.Optimizer = torch.optim.Adam(parameters, lr=rate)
        else:
            optimizer = torch.optim.SGD(parameters, lr=rate, momentum=0.9)
        self.optimizers.append(optimizer)
        return optimizer

    def parameters(self) -> list[nn.Parameter]:
        return [p for o in self.optimizers for g in o.param_groups for p in g["params"]]


class Bus:
    """Two copiers that count their bytes, and the elements by dtype."""

    def __init__(self) -> None:
        self.down = self.up = 0

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        self.down += tensor.numel() * tensor.element_size()
        return tensor.detach().clone()

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        self.up += tensor.numel() * tensor.element_size()
        return tensor.detach().clone()


def train(case: Case, answer: Callable, bus: Bus | None = None) -> dict[str, Any]:
    model, maker = _model(case), Maker(case.data["kind"])
    step = answer(model, maker)
    if not callable(step):
        return {"step": plain(step)}
    named = dict(model.named_parameters())
    if changed := {str(p.dtype) for p in named.values()} - {"torch.bfloat16"}:
        return {"changed": changed.pop().removeprefix("torch.")}
    if bus:
        bus.down = bus.up = 0
    for _ in range(STEPS):
        for name, gradient in case.data["grads"].items():
            named[name].grad = gradient.clone()
        step()
    masters = maker.parameters()
    return {
        "after": {name: plain(p) for name, p in named.items()},
        "left": held_bytes(p.grad for p in named.values()),
        "masters": held_bytes(masters),
        "dtypes": sorted({str(p.dtype).removeprefix("torch.") for p in masters}),
        "kept": held_bytes(p.grad for p in masters if not any(p is own for own in named.values())),
        "bus": (bus.down, bus.up) if bus else (0, 0),
    }


def wanted(case: Case) -> dict[str, torch.Tensor]:
    """The parameters after all steps, in float64 throughout."""
    model = Net(case.data["options"])
    model.load_state_dict(case.data["state"])
    optimizer = Maker(case.data["kind"])(trainable(model))
    named = dict(model.named_parameters())
    for _ in range(STEPS):
        for name, gradient in case.data["grads"].items():
            named[name].grad = gradient.double()
        optimizer.step()
    return {name: p.detach() for name, p in named.items()}


def values(case: Case, seen: dict[str, Any]) -> Finding | None:
    if "step" in seen:
        kind = kind_of(seen["step"])
        return Finding(
            f"your function returned {kind}: return the function step itself, without calling it",
            expected="a function",
            got=kind,
        )
    if "changed" in seen:
        return Finding(
            "the model is no longer bfloat16: the fp32 copies are tensors of their own",
            expected="parameters in bfloat16",
            got=seen["changed"],
        )
    for name, want in wanted(case).items():
        got, start = seen["after"][name], case.data["state"][name]
        wrong = (got.double() - want).abs() > 1.01 * ULP * want.abs()
        if not wrong.any():
            continue
        first = int(wrong.reshape(-1).nonzero()[0])
        likely = f"{name!r} after {STEPS} steps is not within one rounding of the fp32 copy"
        if torch.equal(got, start):
            likely = (
                f"{name!r} has not moved in {STEPS} steps: each update is less than half of the "
                "distance to the next bfloat16 number, so it is rounded away. The optimizer must "
                "step on the fp32 copy, and only the result is rounded"
            )
        elif (got.double() - start.double()).abs().max() < (want - start.double()).abs().max() / 2:
            likely = (
                f"{name!r} has moved by less than half of what it should: do the copies begin anew "
                "from the rounded parameters in each step?"
            )
        return Finding(
            likely,
            expected=glimpse(want.float(), first),
            got=glimpse(got.float(), first),
        )
    return None


def wrong_memory(case: Case, seen: dict[str, Any]) -> Finding | None:
    count = sum(p.numel() for p in trainable(Net(case.data["options"])))
    if seen["dtypes"] != ["float32"]:
        return Finding(
            "the parameters are right, but the optimizer does not step on fp32 copies",
            expected="float32",
            got=", ".join(seen["dtypes"]),
        )
    if seen["masters"] > 4 * count:
        return Finding(
            "the parameters are right, but there are more fp32 copies than parameters that learn, "
            "each once",
            expected=f"{4 * count} bytes of copies",
            got=f"{seen['masters']} bytes",
        )
    if seen["kept"]:
        return Finding(
            "the parameters are right, but the fp32 gradients stay after the step: that makes 20 "
            "bytes per parameter of 16. Set the copies' .grad to None at the end of step",
            expected="0 bytes in the copies' .grad",
            got=f"{seen['kept']} bytes",
        )
    return None
