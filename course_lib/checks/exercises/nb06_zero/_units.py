"""What a ZeRO-3 step is given: layers that can be gathered and released, and that keep a log.

The log has (what, number of the layer) in order: gather, wait, release, reduce, and F and B where
a layer begins to run forward and backward.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.checks.profiler_labels import meanwhile, message

Log = list[tuple[str, int]]


class Layer(nn.Module):
    """tanh(x W^T + b), which notes when it begins to run forward ("F") and backward ("B").

    Of integers x it takes columns of W, as an embedding does.
    """

    def __init__(self, state: dict[str, torch.Tensor], frozen: bool):
        super().__init__()
        self.weight = nn.Parameter(state["weight"].clone())
        self.bias = nn.Parameter(state["bias"].clone(), requires_grad=not frozen)
        self.note: Callable[[str], None] = lambda what: None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.note("F")
        if x.is_floating_point():
            h = nn.functional.linear(x, self.weight, self.bias)
        else:
            h = self.weight.t()[x] + self.bias
        if h.requires_grad:
            h.register_hook(lambda _: self.note("B"))
        return torch.tanh(h)


class Unit:
    """A layer of which a rank keeps a part; `log` tells what was done to all of them, in order."""

    def __init__(self, number: int, module: Layer, log: Log, last: int):
        n, rank = dist.get_world_size(), dist.get_rank()
        self.module = module
        self._number, self._log, self._last = number, log, last
        self._gathers = 0
        self._parameters = list(module.parameters())
        full = padded([p.detach() for p in self._parameters], n)
        self.shard = nn.Parameter(full.chunk(n)[rank].clone())
        self._full, self._bytes, start = full, full.nbytes, 0
        self._arrived = False
        for p in self._parameters:
            p.data = full[start : start + p.numel()].view_as(p)
            start += p.numel()
        full.untyped_storage().resize_(0)
        module.note = self._runs

    def gather(self) -> "_Handle":
        self._note("gather")
        self._arrived = False
        self._full.untyped_storage().resize_(self._bytes)
        parts = list(self._full.chunk(dist.get_world_size()))
        with record_function(message(_gather_of(self._number, self._gathers))):
            work = dist.all_gather(parts, self.shard.detach(), async_op=True)
        self._gathers += 1
        return _Handle(work, self._waited)

    def release(self) -> None:
        self._note("release")
        self._full.untyped_storage().resize_(0)

    def reduce(self) -> None:
        self._note("reduce")
        n = dist.get_world_size()
        grads = [torch.zeros(p.shape).to(p) if p.grad is None else p.grad for p in self._parameters]
        mine = torch.empty_like(self.shard)
        dist.reduce_scatter(mine, list(padded(grads, n).chunk(n)))
        self.shard.grad = mine / n
        for p in self._parameters:
            p.grad = None

    def _waited(self) -> None:
        self._note("wait")
        self._arrived = True

    def _runs(self, what: str) -> None:
        """Forward ("F") or backward ("B"). Without parameters it would read freed memory."""
        number, last = self._number, self._log[-1] if self._log else ("", -1)
        self._note(what)
        way, following = ("forward", number + 1) if what == "F" else ("backward", number - 1)
        if 0 <= following <= self._last:
            with meanwhile(f"layer {number} runs {way}", _gather_of(following, what == "B")):
                pass
        there = self._arrived and self._full.untyped_storage().nbytes() > 0
        if there or not self._bytes:
            return
        if what == "B" and last == ("B", number + 1):
            raise RuntimeError(
                f"backward went on from layer {number + 1} into layer {number} by itself, and "
                f"layer {number} is not there yet. Cut the graph between layers: "
                "h = output.detach().requires_grad_()"
            )
        if what == "B" and self._released_since_forward():
            raise RuntimeError(
                f"layer {number} runs backward, and its parameters were released. If the loss's "
                "backward() went on into it by itself, cut the graph before the loss as well: "
                "h = output.detach().requires_grad_(). Else gather the layer again, and wait for "
                "the handle, before its backward"
            )
        raise RuntimeError(
            f"layer {number} runs {way}, and its parameters are not there: gather it, and wait for "
            "the handle, before it runs; release it after"
        )

    def _released_since_forward(self) -> bool:
        """Whether this is the first backward of all, and nobody has gathered again."""
        since = self._log[self._log.index(("F", self._number)) : -1]
        fetched = ("gather", self._number) in since
        return not fetched and all(what != "B" for what, _ in since)

    def _note(self, what: str) -> None:
        self._log.append((what, self._number))


def _gather_of(number: int, before: int) -> str:
    """What a gather is called, by how many came before: the second one is for backward."""
    return f"the gather of layer {number}" + " for its backward pass" * min(before, 1)


class _Handle:
    def __init__(self, work: dist.Work, note: Callable[[], None]):
        self._work, self._note = work, note

    def wait(self) -> None:
        self._note()
        self._work.wait()


def padded(tensors: Sequence[torch.Tensor], n: int) -> torch.Tensor:
    """All elements in one row, with zeros up to a multiple of n."""
    flat = torch.cat([t.reshape(-1) for t in tensors])
    return nn.functional.pad(flat, (0, -flat.numel() % n))
