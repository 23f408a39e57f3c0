"""ZeRO stage 3: parameters are sharded too. A module's are whole only while it runs.

    forward     gather 0 | run 0, gather 1 | free 0, run 1, gather 2 | ...
    backward    gather 2 | run 2, gather 1 | free 2, reduce-scatter 2, run 1, gather 0 | ...

A rank holds an N-th of parameters, gradients and optimizer state, and besides them the modules that
run, are fetched or are sent at the moment. The parameters travel twice, for forward and for
backward, and the gradients once: 3 (N-1)/N of the parameters, where stages 1 and 2 send 2. After
the step there is nothing to send.

Rajbhandari et al., "ZeRO", SC 2020, sections 5.3 and 7.2.2; in PyTorch, Zhao et al., "PyTorch FSDP:
Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import register_multi_grad_hook

from course_lib.techniques.collectives.broadcast import broadcast_state

from .sharded_optimizer import MakeOptimizer, ShardedOptimizer, ShardedTraining
from .unit import Unit, blocks, divide, tensors_in
from .zero2 import Bucket


class Zero3(ShardedTraining):
    """As `Zero2`, with parameters sharded, and gathered module by module by hooks.

    Outside of forward and backward, a parameter of the model is the 1-D piece of it on this rank;
    `whole_parameters` shows all of them. All ranks call the same modules in the same order.

    units: modules whose parameters are gathered together (None: see `blocks`). Parameters of no
        unit, and those tied between units, are whole from the model's forward to the end of
        backward.
    free_after_forward: without it, parameters stay whole until backward is done with them: 2 in
        place of 3, for the memory that stage 3 saves on parameters.
    """

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: MakeOptimizer,
        group: dist.ProcessGroup | None = None,
        *,
        param_groups: Sequence[Mapping[str, Any]] | None = None,
        master_dtype: torch.dtype | None = None,
        units: Sequence[nn.Module] | None = None,
        free_after_forward: bool = True,
    ) -> None:
        self.model, self.group, self.free_after_forward = model, group, free_after_forward
        broadcast_state(model, group)
        self.trainable = [p for p in model.parameters() if p.requires_grad]  # a tied one once
        names = {module: name for name, module in model.named_modules()}
        parts = divide(model, blocks(model) if units is None else list(units))
        self.units = {m: Unit(names[m], params, group) for m, params in parts.items()}
        self.root = self.units[model]
        self.buckets = [bucket for unit in self.units.values() for bucket in unit.buckets]
        self.flats = [bucket.flat for bucket in self.buckets]
        self.frozen = [pair for unit in self.units.values() for pair in unit.frozen()]
        own = [s for u in self.units.values() for s in u.shards[: len(u.buckets)]]
        self.sharded = ShardedOptimizer(
            self.flats, own, make_optimizer, param_groups, master_dtype, group
        )
        self.optimizer = self.sharded.optimizer
        for module, unit in self.units.items():
            module.register_forward_pre_hook(partial(self._before_forward, unit), with_kwargs=True)
            module.register_forward_hook(partial(self._after_forward, unit))
            for bucket in unit.buckets:
                for parameter in bucket.flat.parameters:
                    ready = partial(self._ready, unit, bucket)
                    parameter.register_post_accumulate_grad_hook(ready)
        self.order: list[Unit] = []  # in which the last forward pass called the units
        self.called: list[Unit] = []  # by the forward pass going on
        self.travelling: list[Bucket] = []
        self.in_backward = False
        self.zero_grad()

    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.shard = None
        self.present: set[nn.Parameter] = set()
        self.sharded.forget_gradients()

    def _before_forward(self, unit: Unit, module: nn.Module, args: tuple, kwargs: dict) -> None:
        unit.start_gather()
        if not self.in_backward:  # there, activation checkpointing runs a part again
            self._prefetch(unit, +1)
            self.called.append(unit)
            inputs = [t for t in tensors_in((args, kwargs)) if t.grad_fn is not None]
            unit.forwards += torch.is_grad_enabled()
            if inputs and unit is not self.root:
                register_multi_grad_hook(inputs, lambda _: self._after_backward(unit))
        unit.gather()

    def _after_forward(self, unit: Unit, module: nn.Module, args: tuple, output: Any) -> None:
        if unit.in_backward:
            return
        nodes = [t.grad_fn for t in tensors_in(output) if t.grad_fn is not None]
        for node in () if self.in_backward else nodes:
            # Before the node runs, and after the unit behind this one has given up its memory.
            node.register_prehook(lambda _: self._before_backward(unit))
        if not nodes or (self.free_after_forward and unit is not self.root):
            unit.free()
        if unit is self.root and not self.in_backward:
            self.order, self.called = self.called, []
            if not nodes:
                self._free_all()

    def _before_backward(self, unit: Unit) -> None:
        if not unit.in_backward:
            unit.in_backward = True
            self._enter_backward()
            unit.gather()

    @torch.no_grad()
    def _ready(self, unit: Unit, bucket: Bucket, parameter: nn.Parameter) -> None:
        """Backward has finished this parameter's gradient."""
        self._enter_backward()
        self.present.add(parameter)
        bucket.missing -= 1
        if bucket.missing == len(bucket.flat.parameters) // 4:
            # First the last unit's gradients travel, then the next one's parameters, when this
            # one's activations are mostly free: not all of it takes up memory at one time.
            self._arrive()
            self._prefetch(unit, -1)

    @torch.no_grad()
    def _after_backward(self, unit: Unit) -> None:
        """Backward has the gradients of this unit's inputs, and before them of its parameters."""
        unit.forwards -= 1
        if unit.forwards == 0:
            unit.in_backward = False
            unit.free()
            self._send(unit)

    def _enter_backward(self) -> None:
        if not self.in_backward:
            self.in_backward = True
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    @torch.no_grad()
    def _finish(self) -> None:
        """Backward is over: free what is still whole, send what has not left."""
        self._free_all()
        for unit in self.units.values():
            late = any(p.grad is not None for b in unit.buckets for p in b.flat.parameters)
            if late or not unit.sent:
                self._send(unit)
        self._arrive()
        for unit in self.units.values():
            unit.forwards, unit.in_backward, unit.sent = 0, False, False
        self.in_backward, self.called = False, []

    def _prefetch(self, unit: Unit, direction: int) -> None:
        """Begin to gather what ran after (+1) or before (-1) this unit in the last forward pass."""
        if unit in self.order:
            place = self.order.index(unit) + direction
            if 0 <= place < len(self.order):
                self.order[place].start_gather()

    def _send(self, unit: Unit) -> None:
        self._arrive()
        for bucket in unit.buckets:
            bucket.send()
        self.travelling, unit.sent = unit.buckets, True

    def _arrive(self) -> None:
        for bucket in self.travelling:
            bucket.arrive()
        self.travelling = []

    def reduce_gradients(self) -> None:
        """Give each piece of this rank its gradient; `step` and clipping call it."""
        if not self.sharded.ready:
            self.sharded.set_gradients([bucket.shard for bucket in self.buckets], self.present)

    def refresh(self) -> None:
        """Round to the model's precision; the next forward pass gathers."""
        self.sharded.round_to_shards()

    @contextmanager
    def whole_parameters(self) -> Iterator[None]:
        """All parameters whole, to be read; what is written to them is lost. All ranks enter."""
        for unit in self.units.values():
            unit.gather()
        try:
            yield
        finally:
            self._free_all()

    def _free_all(self) -> None:
        for unit in self.units.values():
            unit.free()
