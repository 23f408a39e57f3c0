"""Gradients that end at a collective: its calls are not differentiable, and do not say so loudly.

Only a graph that goes on is a mistake. Reducing a loss in order to print it is not one, and nor is
communicating parameters (leaves). So an in-place collective is told of when backward passes through
its tensor, and one with outputs of its own when they meet a tensor that requires a gradient.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from . import silent_mistakes
from .calls import Call
from .events import CommEvent, Frame
from .memory_overlap import ByteRange, has_memory
from .threads import lock

# Joining the parts with the rank's own, which does have its gradient, into one tensor is the usual
# way around the cut.
_JOINING = ("aten::cat", "aten::stack")
_DIFFERENTIABLE = {"all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter"}
_DIFFERENTIABLE |= {"reduce_scatter", "all_to_all"}


@dataclass(slots=True)
class _Cut:
    """Memory whose values came through a collective that the gradient does not get through."""

    event: CommEvent
    memory: ByteRange


class CutGradients:
    """Watches what becomes of the results of collectives on tensors inside a graph."""

    def __init__(self, warn: Callable[..., None]):
        self._warn = warn
        self._cuts: list[_Cut] = []
        self._told: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._cuts)

    def issued(self, event: CommEvent, call: Call) -> None:
        """A call that was made where gradients are recorded."""
        if event.op not in _DIFFERENTIABLE:
            return
        outputs = [tensor for tensors in call.writes.values() for tensor in tensors]
        inside = [tensor for tensor in outputs if tensor.grad_fn is not None]
        for tensor in inside:
            tensor.register_hook(lambda _: self._tell(event, silent_mistakes.cut_in_place(event)))
        inputs = [tensor for tensors in call.reads.values() for tensor in tensors]
        if not inside and any(tensor.grad_fn is not None for tensor in inputs):
            self._follow(event, outputs)

    def used(
        self,
        operator: str,
        reads: Iterable[torch.Tensor],
        result: object,
        where: Callable[[], tuple[Frame, ...]],
    ) -> None:
        """An operator read these tensors where gradients are recorded, and gave `result`."""
        with lock:
            self._cuts = [cut for cut in self._cuts if cut.memory.alive()]
        reads = [tensor for tensor in reads if has_memory(tensor)]
        through = [t for t in reads if not t.requires_grad]
        cut = next((c for c in self._cuts for t in through if c.memory.meets(t)), None)
        if cut is None:
            return
        if not any(tensor.requires_grad for tensor in reads):
            results = result if isinstance(result, (list, tuple)) else [result]
            self._follow(cut.event, (t for t in results if isinstance(t, torch.Tensor)))
        elif operator not in _JOINING:
            frames = where()
            self._tell(cut.event, silent_mistakes.cut_from(cut.event, frames), frames)

    def _follow(self, event: CommEvent, tensors: Iterable[torch.Tensor]) -> None:
        with lock:
            self._cuts += [
                _Cut(event, ByteRange.of(tensor))
                for tensor in tensors
                if has_memory(tensor) and tensor.is_floating_point()
            ]

    def _tell(self, event: CommEvent, message: str, where: tuple[Frame, ...] = ()) -> None:
        if event.n not in self._told:
            self._told.add(event.n)
            frames = (where, event.where) if where else (event.where,)
            self._warn("cut_gradient", message, *frames)
