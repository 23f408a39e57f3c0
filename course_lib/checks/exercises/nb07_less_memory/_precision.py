"""What the exercises master_weights and offload share."""

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.exercise import Case, Clue, Finding
from course_lib.checks.exercises._training import (
    ADAM,
    FROZEN,
    MOMENTUM,
    TIED,
    Net,
    held_bytes,
    trainable,
)
from course_lib.checks.format_tensor import glimpse
from course_lib.checks.profiler_labels import BACKWARD

STEPS = 60


RATES = {ADAM: 2e-4, MOMENTUM: 2e-5}  # an update is a small part of what bfloat16 can tell apart


ULP = 2.0**-7  # the distance of neighbours in bfloat16, relative, at most


def cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, MOMENTUM, []),
        _case(rng, ADAM, []),
        _case(rng, ADAM, [FROZEN, TIED]),
    ]


def net(options: list[str]) -> Net:
    """With enough frozen that a copy of it is seen in the bytes."""
    model = Net(options)
    if FROZEN in options:
        model.first.requires_grad_(False)
    return model


def _case(rng: random.Random, kind: str, options: list[str]) -> Case:
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    state = {
        name: (torch.rand(t.shape, generator=generator) + 0.5).bfloat16()
        for name, t in net(options).state_dict().items()
    }
    state["last.bias"] *= 2.0**17  # more than float16 holds
    if TIED in options:
        state["again.weight"] = state["middle.weight"]
    data = {"options": options, "kind": kind, "state": state}
    names = [name for name, p in net(options).named_parameters() if p.requires_grad]
    data["grads"] = {
        name: (torch.rand(state[name].shape, generator=generator) + 0.5).bfloat16()
        for name in names
    }
    traits = {FROZEN: "a frozen layer", TIED: "a shared weight"}
    having = f", with {' and '.join(traits[option] for option in options)}" if options else ""
    frozen = Clue("a frozen parameter has no gradient: take those with requires_grad", "NoneType")
    clue = frozen if options else ""
    return Case(1, f"{STEPS} small steps of {kind} in bfloat16{having}", data, clue)


def _model(case: Case) -> Net:
    model = net(case.data["options"]).bfloat16()
    model.load_state_dict(case.data["state"])
    return model


class Maker:
    """Makes optimizers with the case's learning rate, and remembers their parameters.

    steps: how many they took. gradients: how many of their parameters had one, over all steps.
    """

    def __init__(self, kind: str):
        self.kind = kind
        self.steps = self.gradients = 0
        self.optimizers: list[torch.optim.Optimizer] = []

    def __call__(self, parameters: Any) -> torch.optim.Optimizer:
        rate = RATES[self.kind]
        if self.kind == ADAM:
            optimizer: torch.optim.Optimizer = torch.optim.Adam(parameters, lr=rate)
        else:
            optimizer = torch.optim.SGD(parameters, lr=rate, momentum=0.9)
        optimizer.register_step_pre_hook(self._look)
        self.optimizers.append(optimizer)
        return optimizer

    def _look(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.steps += 1
        stepped = [p for group in optimizer.param_groups for p in group["params"]]
        self.gradients += sum(p.grad is not None for p in stepped)

    def parameters(self) -> list[nn.Parameter]:
        return [p for o in self.optimizers for g in o.param_groups for p in g["params"]]


class Bus:
    """Two copiers that count their bytes.

    scales: what all that goes down, and up, is multiplied by, so that it shows what was copied.
    """

    def __init__(self, scales: tuple[float, float] = (1, 1)) -> None:
        self.down = self.up = 0
        self._scales = scales

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        self.down += tensor.numel() * tensor.element_size()
        return tensor.detach() * self._scales[0]

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        self.up += tensor.numel() * tensor.element_size()
        return tensor.detach() * self._scales[1]


def train(case: Case, answer: Callable, bus: Bus | None = None) -> dict[str, Any]:
    model, maker = _model(case), Maker(case.data["kind"])
    # Copied before the answer runs, so that only the copies of each step count as made by backward.
    gradients = {name: gradient.clone() for name, gradient in case.data["grads"].items()}
    step = answer(model, maker)
    if not callable(step):
        return {"step": plain(step)}
    named = dict(model.named_parameters())
    if changed := _other_dtype(named):
        return {"changed": changed}
    began = bus.down if bus else 0
    if bus:
        bus.down = bus.up = 0
    for number in range(STEPS):
        with record_function(BACKWARD):
            for name, gradient in gradients.items():
                named[name].grad = gradient.clone()
        _call(step, first=number == 0)
        if changed := _other_dtype(named):
            return {"changed in step": changed}
        others = [n for n, p in model.named_parameters() if p is not named[n]]
        if others:
            return {"replaced": others[0]}
    masters = maker.parameters()
    return {
        "after": {name: plain(p) for name, p in named.items()},
        "left": held_bytes(p.grad for p in named.values()),
        "masters": held_bytes(masters),
        "dtypes": sorted({str(p.dtype).removeprefix("torch.") for p in masters}),
        "kept": held_bytes(p.grad for p in masters if not any(p is own for own in named.values())),
        "bus": (bus.down, bus.up) if bus else (0, 0),
        "began": began,
        "steps": maker.steps,
        "gradients": maker.gradients,
        "sum": sum(float(p.detach().double().sum()) for p in masters),
    }


def _call(step: Callable[[], Any], first: bool) -> None:
    try:
        step()
    except (AttributeError, TypeError) as problem:
        if not first and "NoneType" in str(problem):
            # Of Python's own words nobody learns what is missing.
            problem.args = (
                f"{problem}. The first step went well, and the parameters that learn have their "
                "gradients again. What has none is another tensor that took a parameter's place in "
                "your list: write into the parameter itself, p.copy_(copy)",
            )
        raise


def _other_dtype(named: dict[str, nn.Parameter]) -> str:
    """One that a parameter has and should not have; "" if all are bfloat16."""
    found = {str(p.dtype) for p in named.values()} - {"torch.bfloat16"}
    return min(found, default="").removeprefix("torch.")


def wanted(
    case: Case, start: float = 1, gradients: float = 1, up: float = 1
) -> dict[str, torch.Tensor]:
    """The parameters after all steps, in float64 throughout.

    start, gradients, up: what the bus multiplies them by on their way.
    """
    model = net(case.data["options"])
    model.load_state_dict(case.data["state"])
    own = trainable(model)
    with torch.no_grad():
        for p in own:
            p.mul_(start)
    optimizer = Maker(case.data["kind"])(own)
    named = dict(model.named_parameters())
    for _ in range(STEPS):
        for name, gradient in case.data["grads"].items():
            named[name].grad = gradient.double() * gradients
        optimizer.step()
    learn = case.data["grads"]
    return {name: p.detach() * (up if name in learn else 1) for name, p in named.items()}


def is_near(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Which elements are `want`, rounded to bfloat16: off by half of a distance at most."""
    power = torch.exp2(want.abs().log2().floor())  # bfloat16 has 8 digits from it on
    return (got.double() - want).abs() <= 0.51 * ULP * power


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
    if "changed in step" in seen:
        return Finding(
            "after step a parameter is no longer bfloat16: p.data = copy.data gives it the copy's "
            "memory, and p.copy_(copy) rounds into its own",
            expected="parameters in bfloat16",
            got=seen["changed in step"],
        )
    if "replaced" in seen:
        return Finding(
            f"after step {seen['replaced']!r} of the model is another parameter: whoever holds "
            "the old one, as your own list does, gets no gradient any more. Write into it, "
            "p.copy_(copy)",
        )
    results = wanted(case)
    for name, want in results.items():
        got, start = seen["after"][name], case.data["state"][name]
        wrong = ~is_near(got, want)
        if not wrong.any():
            continue
        first = int(wrong.reshape(-1).nonzero()[0])
        likely = f"{name!r} after {STEPS} steps is not within one rounding of the fp32 copy"
        if not got.isfinite().all():
            likely = (
                f"{name!r} is not finite after {STEPS} steps: float16 ends at 65,504, and bfloat16 "
                "has the range of fp32"
            )
        elif torch.equal(got, start):
            likely = f"{name!r} has not moved in {STEPS} steps: {_why_still(seen, results, case)}"
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


def _why_still(seen: dict[str, Any], results: dict[str, torch.Tensor], case: Case) -> str:
    if not seen["steps"]:
        return "no optimizer took a step. Does step() call optimizer.step()?"
    if not seen["gradients"]:
        return (
            "the optimizer's parameters had no gradient in any step. Give each copy that of its "
            "parameter, as fp32: copy.grad = p.grad.float()"
        )
    due = sum(float(results[name].sum()) for name in case.data["grads"])
    began = sum(float(case.data["state"][name].double().sum()) for name in case.data["grads"])
    if seen["dtypes"] == ["float32"] and abs(seen["sum"] - due) < abs(began - due) / 10:
        return (
            "the optimizer's copies are right, and the model's parameters never get them. "
            "p.copy_(copy) writes into a parameter; p = ... only gives the name to another tensor"
        )
    return (
        "each update is less than half of the distance to the next bfloat16 number, so it is "
        "rounded away. The optimizer must step on the fp32 copy, and only the result is rounded"
    )


def count_of(case: Case) -> int:
    """Elements that learn."""
    return sum(p.numel() for p in trainable(net(case.data["options"])))


def held(case: Case, gradients: bool) -> int:
    """Bytes that may live between steps: fp32 copies and state; the model's gradients, if asked."""
    parts = 3 if case.data["kind"] == ADAM else 2
    return count_of(case) * (4 * parts + (2 if gradients else 0))


def wrong_memory(case: Case, seen: dict[str, Any]) -> Finding | None:
    count = count_of(case)
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
