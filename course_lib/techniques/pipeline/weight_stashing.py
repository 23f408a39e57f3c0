"""PipeDream without flushes: no bubble, several versions of the weights.

1F1B drains the pipeline before each optimizer step. PipeDream (Narayanan et al., SOSP 2019, section
3.3) never drains it: every backward is followed at once by an update of that stage. So between the
forward and the backward of a minibatch the weights of stage s change up to p - s - 1 times:

    stage 0 of 3   F0 F1 F2 B0 F3 B1 F4 B2     F3 sees the update by 0, F4 those by 0 and 1
    B3 comes after the updates by 0, 1 and 2, but belongs to the weights that F3 used

A backward pass with newer weights than its forward gives the gradient of no function at all. Hence
**weight stashing**: a stage keeps the version that each minibatch in flight began with, up to p of
them on the first stage. The gradient is then a true one, of weights some updates old.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call

from course_lib.techniques.schedules import one_f_one_b

from .executor import Pipeline
from .stage import Loss, Stage

Version = dict[str, torch.Tensor]


class StashingStage(Stage):
    """A stage that makes a step of gradient descent after every backward.

    stash: False lets backward run with the newest weights, to see what goes wrong. (Autograd
        refuses that where it can; here the change is hidden from it.)
    """

    def __init__(
        self, module: nn.Module, loss: Loss | None, learning_rate: float, stash: bool = True
    ) -> None:
        super().__init__(module, loss)
        self.learning_rate, self.stash = learning_rate, stash
        self.newest: Version = {n: p.detach().clone() for n, p in module.named_parameters()}
        for weight in self.newest.values():
            weight.requires_grad_()
        self.used: dict[int, Version] = {}  # by minibatch in flight
        self.most_versions = 1  # held at the same time

    def forward(
        self, microbatch: int, x: torch.Tensor, target: torch.Tensor | None = None
    ) -> torch.Tensor:
        self.used[microbatch] = self.newest
        held = {id(version) for version in self.used.values()}
        self.most_versions = max(self.most_versions, len(held))
        return super().forward(microbatch, x, target)

    def backward(
        self, microbatch: int, gradient: torch.Tensor | None = None
    ) -> torch.Tensor | None:
        gradient = super().backward(microbatch, gradient)
        used = self.used.pop(microbatch)
        steps = {n: self.learning_rate * w.grad for n, w in used.items() if w.grad is not None}
        for weight in used.values():
            weight.grad = None
        if self.stash:
            newest = {n: w.detach() - steps[n] if n in steps else w for n, w in self.newest.items()}
            self.newest = {n: w.requires_grad_() for n, w in newest.items()}
        else:
            for name, step in steps.items():
                self.newest[name].data -= step
        return gradient

    def _run(self, x: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
        output = functional_call(self.module, self.newest, (x,))
        return output if self.loss is None else self.loss(output, target)


class PipeDream(Pipeline):
    """One rank's stage of a pipeline that is never drained: minibatch after minibatch through 1F1B.

    A minibatch is here what a microbatch is there; each has an update of its own.
    """

    def __init__(
        self,
        module: nn.Module,
        minibatches: int,
        loss: Loss,
        learning_rate: float,
        *,
        stash: bool = True,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        schedule = one_f_one_b(dist.get_world_size(group), minibatches)
        super().__init__({dist.get_rank(group): module}, schedule, loss, group=group)
        own_loss = loss if self.rank == self.last else None
        self.stage = StashingStage(module, own_loss, learning_rate, stash)  # has the newest weights
        self.stages = {self.rank: self.stage}

    def train(self, inputs: torch.Tensor, targets: torch.Tensor) -> list[float]:
        """Train on the batch, cut into minibatches; their losses on the last rank, else []."""
        self.train_step(inputs, targets)
        return [float(loss) for loss in self.losses]
