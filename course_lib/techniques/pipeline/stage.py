"""One stage of a pipeline: its layers, and what is kept of each microbatch until its backward.

Between F and B of a microbatch a stage keeps the input and what autograd saved for backward: one
microbatch "in flight". The output itself is not kept; once sent, its memory is free again.

With `recompute` (GPipe's re-materialization, Huang et al. 2019, section 2.3) F saves the input
only, and B begins by running the forward pass again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from course_lib.techniques.schedules import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, Op

from .split_backward import SplitBackward

Loss = Callable[[torch.Tensor, Any], torch.Tensor]  # (output, target) -> scalar
Before = Callable[[int], None]  # (microbatch)

_PASSES = {
    FORWARD: "forward",
    BACKWARD: "backward",
    BACKWARD_INPUT: "input-gradient",
    BACKWARD_WEIGHT: "weight-gradient",
}


class StageError(RuntimeError):
    """A stage raised; the message says which, and on which microbatch."""

    @classmethod
    def told(cls, op: Op, error: Exception) -> "StageError":
        """The error of a stage with what it ran of the schedule, and the lines it came from."""
        what = f"stage {op.stage} raised in the {_PASSES[op.kind]} pass"
        said = f"{what} of microbatch {op.microbatch} ({op}): {type(error).__name__}: {error}"
        return cls(said).with_traceback(error.__traceback__)


@dataclass
class InFlight:
    """What a stage keeps of one microbatch."""

    x: torch.Tensor
    target: torch.Tensor | None = None
    output: GradientEdge | None = None  # where backward starts; None if nothing needs a gradient
    seed: torch.Tensor | None = None  # the gradient it starts with, where there is a loss
    random: list[torch.Tensor] | None = None  # states of the generators before F, to run it again
    split: SplitBackward | None = None  # between I and W


class Stage:
    """Layers and microbatches of one stage. Gradients add up in the parameters' `.grad`.

    loss: on the last stage, a mean over the samples of the microbatch.
    microbatches: how many make up the batch. Backward starts from loss / microbatches, so that the
        gradients add up to that of the mean over the batch.
    recompute: keep only the input between F and B.
    before: called with a microbatch's number before each forward pass of it.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | None = None,
        microbatches: int = 1,
        recompute: bool = False,
        before: Before = lambda microbatch: None,
    ) -> None:
        self.module, self.loss = module, loss
        self.microbatches, self.recompute, self.before = microbatches, recompute, before
        self.in_flight: dict[int, InFlight] = {}

    def forward(
        self, microbatch: int, x: torch.Tensor, target: torch.Tensor | None = None
    ) -> torch.Tensor:
        """F: the stage's output, or the loss of the microbatch where there is a loss.

        Backward will compute a gradient for `x` if it requires one. The result has no history; it
        requires a gradient where a gradient is to come back.
        """
        self.before(microbatch)
        kept = self.in_flight[microbatch] = InFlight(x, None if self.loss is None else target)
        if self.recompute:
            kept.random = _generator_states(x)
            with torch.no_grad():
                output = self._run(x, target)
            needs_gradient = x.requires_grad or any(
                parameter.requires_grad for parameter in self.module.parameters()
            )
        else:
            output = self._run(x, target)
            needs_gradient = output.requires_grad
            self._keep_start_of_backward(kept, output)
        return output.detach().requires_grad_(needs_gradient)

    def evaluate(
        self, microbatch: int, x: torch.Tensor, target: torch.Tensor | None = None
    ) -> torch.Tensor:
        """F without anything kept for a backward pass."""
        self.before(microbatch)
        with torch.no_grad():
            return self._run(x, target)

    def backward(
        self, microbatch: int, gradient: torch.Tensor | None = None
    ) -> torch.Tensor | None:
        """B: from the gradient of the output (none for a loss) to that of the input, if wanted."""
        kept = self._begin_backward(microbatch)
        if kept.output is not None:
            torch.autograd.backward(kept.output, gradient if kept.seed is None else kept.seed)
        del self.in_flight[microbatch]
        return _gradient_of(kept.x)

    def backward_input(
        self, microbatch: int, gradient: torch.Tensor | None = None
    ) -> torch.Tensor | None:
        """I: as `backward`, without the gradients of the weights."""
        kept = self._begin_backward(microbatch)
        if kept.output is not None:
            kept.split = SplitBackward(kept.output, kept.x)
            kept.split.input_pass(gradient if kept.seed is None else kept.seed)
        return _gradient_of(kept.x)

    def backward_weight(self, microbatch: int) -> None:
        """W: the gradients of the weights, which I has left out."""
        kept = self.in_flight.pop(microbatch)
        if kept.split is not None:
            kept.split.weight_pass()

    # --------------------------------------------------------------------------------------------

    def _run(self, x: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
        output = self.module(x)
        return output if self.loss is None else self.loss(output, target)

    def _keep_start_of_backward(self, kept: InFlight, output: torch.Tensor) -> None:
        if output.requires_grad:
            if self.loss is not None:
                output = output / self.microbatches
                kept.seed = torch.ones_like(output)
            kept.output = get_gradient_edge(output)

    def _begin_backward(self, microbatch: int) -> InFlight:
        """What F has kept, with the forward pass run again where it kept too little."""
        kept = self.in_flight[microbatch]
        if kept.random is not None:
            self.before(microbatch)
            devices = [kept.x.device] if kept.x.is_cuda else []
            with torch.random.fork_rng(devices):
                _restore(kept.random, kept.x)
                self._keep_start_of_backward(kept, self._run(kept.x, kept.target))
        return kept


def _gradient_of(x: torch.Tensor) -> torch.Tensor | None:
    """What goes back to the stage before; zeros if the output does not depend on `x`."""
    if not x.requires_grad:
        return None
    gradient, x.grad = x.grad, None
    return torch.zeros_like(x) if gradient is None else gradient


def _generator_states(x: torch.Tensor) -> list[torch.Tensor]:
    """So that dropout drops the same elements when F runs again."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(x.device)] if x.is_cuda else states


def _restore(states: list[torch.Tensor], x: torch.Tensor) -> None:
    torch.set_rng_state(states[0])
    if x.is_cuda:
        torch.cuda.set_rng_state(states[1], x.device)
