"""What lies in memory, and what for: all storages that operators touch, until they are given back.

Counted are the bytes that a storage was asked for, once however many tensors view it. Not counted
are what the allocator adds, buffers inside an operator, and gloo's own. A tensor that was there
before the recorder counts from when an operator first reads it.

    parameters     an nn.Parameter lies in it, or what an optimizer of torch.optim steps
    gradients      some parameter's `.grad` lies in it
    optimizer      in the `state` of a torch.optim optimizer
    activations    a graph keeps it for its backward pass, for as long as it does: outputs of
                   layers, and also the batch that went into the first one; what a checkpoint
                   computes again; what others' saved_tensors_hooks keep instead of a tensor
    communication  torch.distributed read it or wrote into it
    other          the rest

The first of these that holds is what a block counts as, and but for activations it holds from the
block's beginning: a gradient is one while it is being computed. A tensor that nobody can know about
(the moments of an optimizer written by hand) is told by a label; what is first seen inside

    with torch.profiler.record_function("optimizer"):       # or another of the six

counts as that whatever becomes of it.

A `TorchDispatchMode` sees all operators, which several times slows a small one down: so memory is
watched only if asked for. While it is, torch cannot notice writes into tensors saved for backward.
"""

import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode

from .journal import JournalWriter
from .threads import lock

KINDS = ("parameters", "gradients", "optimizer", "activations", "communication", "other")


class _Block:
    """What is known of a storage that is alive."""

    __slots__ = ("fixed", "kind", "n", "nbytes", "reference", "saves")

    def __init__(self, n: int, kind: str | None):
        self.n, self.kind, self.fixed = n, kind or "other", kind is not None
        self.nbytes, self.saves = -1, 0
        self.reference: weakref.ref | None = None


class _Saved:
    """What a graph keeps for backward; when it lets go of this, its blocks are kept no longer."""

    __slots__ = ("_blocks", "_tracker", "value")

    def __init__(self, value: Any, blocks: list["_Block"], tracker: "MemoryTracker"):
        self.value, self._blocks, self._tracker = value, blocks, tracker

    def __del__(self) -> None:
        self._tracker._let_go(self._blocks)


class MemoryTracker(TorchDispatchMode):
    """Writes to the journal what becomes of every storage, from enter to exit.

    spans: the labels that are open, outermost first.
    """

    supports_higher_order_operators = True

    def __init__(self, journal: JournalWriter, spans: Sequence[str]):
        super().__init__()
        self._journal, self._spans = journal, spans
        self._count = 0
        self._blocks: dict[int, _Block] = {}  # by address of the storage
        self._followed: dict[int, tuple[weakref.ref, Any]] = {}  # parameters, by id
        self._saving = saved_tensors_hooks(self._pack, lambda saved: saved.value)
        self._again: list[_Block] = []  # computed again, until backward is over
        self._open = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # for the reason given in `Watch`

    def __enter__(self) -> "MemoryTracker":
        self._open = True
        self._hooks = [
            register_module_parameter_registration_hook(self._registered),
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        self._resize = torch.UntypedStorage.resize_
        torch.UntypedStorage.resize_ = self._resized()  # type: ignore[method-assign]
        self._saving.__enter__()
        self._enter_hooks = saved_tensors_hooks.__enter__
        saved_tensors_hooks.__enter__ = self._around_hooks()  # type: ignore[method-assign]
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        saved_tensors_hooks.__enter__ = self._enter_hooks  # type: ignore[method-assign]
        self._saving.__exit__(*exception)
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        for hook in [*self._hooks, *(hook for _, hook in self._followed.values())]:
            hook.remove()
        self._open = False
        self._blocks.clear()
        self._followed.clear()

    # -----------------------------------------------------------------------------------------
    # seeing a storage

    def __torch_dispatch__(
        self, func: Any, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # it stands for others, whose operators come next
        result = func(*args, **kwargs)
        for tensor in _tensors((args, tuple(kwargs.values()), result)):
            self._see(tensor)
        return result

    def _see(self, tensor: torch.Tensor, kind: str = "other") -> _Block | None:
        """Count the storage behind `tensor`, and that it is for `kind`; None if it has none."""
        if isinstance(tensor, nn.Parameter):
            kind = "parameters"
            self._follow(tensor)
            self._accumulated(tensor)
        for inner in _inner(tensor):
            block = self._block(inner.untyped_storage())
            if not block.fixed and KINDS.index(kind) < KINDS.index(block.kind):
                block.kind = kind
                self._journal.kind(block.n, kind)
            if inner is tensor:
                return block
        return None

    def _block(self, storage: torch.UntypedStorage) -> _Block:
        block = self._blocks.get(storage._cdata)
        if block is None:
            with lock:
                block = self._blocks.get(storage._cdata) or self._first_seen(storage)
        if storage.nbytes() != block.nbytes:
            block.nbytes = storage.nbytes()
            self._write(block)
        return block

    def _first_seen(self, storage: torch.UntypedStorage) -> _Block:
        key = storage._cdata
        label = self._spans[-1] if self._spans and self._spans[-1] in KINDS else None
        block = self._blocks[key] = _Block(self._count, label)
        self._count += 1
        block.reference = weakref.ref(storage, lambda _: self._freed(key))
        if label:
            self._journal.kind(block.n, label)
        return block

    def _freed(self, key: int) -> None:
        if (block := self._blocks.pop(key, None)) is not None:
            block.nbytes = block.saves = 0
            self._write(block)

    def _resized(self) -> Any:
        original, see = self._resize, self._block

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            result = original(storage, size)
            see(storage)
            return result

        return resize_

    def _write(self, block: _Block) -> None:
        if self._open:
            self._journal.block(
                block.n, time.monotonic(), block.nbytes, block.saves > 0 and not block.fixed
            )

    # -----------------------------------------------------------------------------------------
    # what it is for

    def _pack(self, tensor: torch.Tensor) -> _Saved:
        return _Saved(tensor, self._keep([tensor]), self)

    def _keep(self, tensors: Iterable[torch.Tensor]) -> list[_Block]:
        """A graph keeps these."""
        blocks = [block for tensor in tensors if (block := self._see(tensor)) is not None]
        with lock:
            for block in blocks:
                block.saves += 1
                if block.saves == 1:
                    self._write(block)
        return blocks

    def _let_go(self, blocks: list[_Block]) -> None:
        with lock:
            for block in blocks:
                if block.saves > 0:  # else it has been given back
                    block.saves -= 1
                    if block.saves == 0:
                        self._write(block)

    def _around_hooks(self) -> Any:
        """Hooks of others, as of a checkpoint, go before ours: look at what they keep."""
        enter, tracker = self._enter_hooks, self

        def enter_and_look(hooks: saved_tensors_hooks) -> None:
            def pack(tensor: torch.Tensor) -> _Saved:
                packed = hooks.pack_hook(tensor)
                if torch._C._current_graph_task_id() != -1:  # computed again, inside a backward
                    tracker._again += tracker._keep([tensor])
                return _Saved(packed, tracker._keep(_tensors(packed)), tracker)

            enter(saved_tensors_hooks(pack, lambda saved: hooks.unpack_hook(saved.value)))

        return enter_and_look

    def _registered(self, module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        self._see(parameter)

    def _follow(self, parameter: torch.Tensor) -> None:
        key = id(parameter)
        if key in self._followed or not (parameter.requires_grad and parameter.is_leaf):
            return
        hook = parameter.register_post_accumulate_grad_hook(self._accumulated)
        reference = weakref.ref(parameter, lambda _: self._followed.pop(key, None))
        self._followed[key] = reference, hook

    def _accumulated(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self._see(parameter.grad, "gradients")

    def after_backward(self) -> None:
        """Gradients may have moved, as into a bucket that is reduced."""
        self._let_go(self._again)
        self._again.clear()
        for reference, _ in list(self._followed.values()):
            if (parameter := reference()) is not None:
                self._accumulated(parameter)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._see(parameter, "parameters")
                self._accumulated(parameter)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        for tensor in _tensors(tuple(optimizer.state.values())):
            self._see(tensor, "optimizer")

    def communicated(self, tensors: Iterable[torch.Tensor]) -> None:
        """torch.distributed got these tensors."""
        for tensor in tensors:
            self._see(tensor, "communication")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _inner(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """`tensor` itself, or those that one of a special class stands for (DTensor); with memory."""
    if hasattr(tensor, "__tensor_flatten__"):
        parts = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        for part in _tensors(list(parts)):  # a DTensor also names its mesh
            yield from _inner(part)
    elif tensor.layout is torch.strided and not tensor.is_meta and not nn.parameter.is_lazy(tensor):
        yield tensor
