"""Horovod's DistributedOptimizer: a single-device training script, four lines longer.

    broadcast_state(model)                                        # all ranks start equal
    optimizer = DistributedOptimizer(optimizer, model)
    ...
    loss.backward()       # gradients leave as they become ready, in fused buffers
    optimizer.step()      # waits for the last of them, then steps with the average

Sergeev & Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", arXiv
1802.05799 (2018).

Horovod lets a coordinator agree every few milliseconds on which gradients all ranks have ready.
Here the agreement is made beforehand: gradients are reduced in the reverse order of the parameters,
which is about the order in which backward makes them, and a buffer leaves when it and all before it
are complete. So the ranks call their collectives in one order without a word.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course_lib.techniques.collectives.fusion import DEFAULT_BUFFER_BYTES, fuse, pack, unfuse

start_all_reduce = partial(dist.all_reduce, async_op=True)


class DistributedOptimizer:
    """An optimizer whose `step` uses the gradients averaged over `group`.

    Frozen parameters are left out. A parameter that got no gradient on this rank counts as zero,
    so that a rank where a branch was not taken does not keep the others waiting; one that got none
    on any rank keeps None. A tied parameter is reduced once, when its gradient is complete.

    `all_reduce(buffer, group=group)` sums a buffer in place. One that returns its work is waited
    for in `step`; any other, such as `ring_all_reduce`, has finished when it returns, and holds up
    backward meanwhile.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        group: dist.ProcessGroup | None = None,
        all_reduce: Callable[..., object] = start_all_reduce,
    ):
        self.optimizer = optimizer
        self.group = group
        self.all_reduce = all_reduce
        self.world_size = dist.get_world_size(group)
        trainable = [p for p in model.parameters() if p.requires_grad]  # each tied one once
        self.buffers = list(pack(reversed(trainable), buffer_bytes))
        self.buffer_of = {p: i for i, run in enumerate(self.buffers) for p in run}
        self.hooks = [p.register_post_accumulate_grad_hook(self._ready) for p in trainable]
        self._begin()

    def _begin(self) -> None:
        self.missing = [len(run) for run in self.buffers]
        self.on_their_way: list[tuple[torch.Tensor, object]] = []

    def _ready(self, parameter: nn.Parameter) -> None:
        """Backward has finished this parameter's gradient."""
        number = self.buffer_of[parameter]
        if number < len(self.on_their_way):
            raise RuntimeError(
                "backward ran again before step(): the gradients of the first pass are on their "
                "way already. Call step() after each backward, or add up the losses first."
            )
        self.missing[number] -= 1
        self._send(lambda i: self.missing[i] <= 0)

    def _send(self, complete: Callable[[int], bool]) -> None:
        """Start the all-reduce of the next buffers in order, while they are complete."""
        while (i := len(self.on_their_way)) < len(self.buffers) and complete(i):
            run = self.buffers[i]
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in run]
            # Behind them one number each, which adds up to how many ranks have that gradient.
            present = grads[0].new_tensor([float(p.grad is not None) for p in run])
            buffer = fuse([*grads, present])
            work = self.all_reduce(buffer, group=self.group)
            self.on_their_way.append((buffer, work))

    def synchronize(self) -> None:
        """Wait for all gradients; every `.grad` then holds the average. `step` calls it."""
        self._send(lambda i: True)  # what backward never reached
        for run, (buffer, work) in zip(self.buffers, self.on_their_way, strict=True):
            if isinstance(work, dist.Work):
                work.wait()
            grads = [torch.empty_like(p) for p in run]
            present = buffer.new_empty(len(run))
            unfuse(buffer.div_(self.world_size), [*grads, present])
            for parameter, grad, share in zip(run, grads, present.tolist(), strict=True):
                parameter.grad = grad if share else None
        self._begin()

    def step(self) -> Any:
        """Wait for the averaged gradients, then step as the optimizer would on one device."""
        self.synchronize()
        return self.optimizer.step()

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()
