"""ZeRO stage 3: parameters are sharded too. A module's are whole only while it runs.

    for unit in units:                          forward
        unshard(unit); x = unit(x); reshard(unit)
    for unit in reversed(units):                backward
        unshard(unit); gradients = backward(unit); reshard(unit)
        reduce_scatter(gradients)               to a shard on each rank
    step of the shards                          and there is nothing to send afterwards

Hooks do the same to any model, and fetch one unit ahead (prefetch.py).

A rank holds an N-th of parameters, gradients and optimizer state, and besides them the units that
run, are fetched or are sent at the moment. The parameters travel twice, for forward and for
backward, and the gradients once: 3 (N-1)/N of the parameters, where stages 1 and 2 send 2.

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

from course_lib.techniques.make_optimizer import MakeOptimizer

from .prefetch import Prefetcher
from .scattered_buckets import ScatteredBucket
from .sharded_training import ShardedTraining
from .unshard_reshard import TrainingState, Unit, blocks, divide, tensors_in


class Zero3(ShardedTraining):
    """As `Zero2`, with parameters sharded, and made whole module by module by hooks.

    Outside of forward and backward, a parameter of the model is the 1-D piece of it on this rank;
    `whole_parameters` shows all of them. All ranks call the same modules in the same order.

    units: modules whose parameters are whole together (None: see `blocks`). Parameters of no
        unit, and those tied between units, are whole from the model's forward to the end of
        backward.
    free_after_forward: without it, parameters stay whole until backward is done with them: 2
        instead of 3, for the memory that stage 3 saves on parameters.
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
        self.free_after_forward = free_after_forward
        self.modules = blocks(model) if units is None else list(units)
        super().__init__(
            model, make_optimizer, group, param_groups=param_groups, master_dtype=master_dtype
        )

    def _shard(self) -> list[torch.Tensor]:
        names = {module: name for name, module in self.model.named_modules()}
        parts = divide(self.model, self.modules)
        self.units = {m: Unit(names[m], params, self.group) for m, params in parts.items()}
        self.root = self.units[self.model]
        self.buckets = [bucket for unit in self.units.values() for bucket in unit.buckets]
        self.flats = [bucket.flat for bucket in self.buckets]
        self.frozen = [pair for unit in self.units.values() for pair in unit.frozen()]
        return [s for u in self.units.values() for s in u.shards[: len(u.buckets)]]

    def _watch(self) -> None:
        for module, unit in self.units.items():
            module.register_forward_pre_hook(partial(self._before_forward, unit), with_kwargs=True)
            module.register_forward_hook(partial(self._after_forward, unit))
            for bucket in unit.buckets:
                for parameter in bucket.flat.parameters:
                    ready = partial(self._ready, unit, bucket)
                    parameter.register_post_accumulate_grad_hook(ready)
        self.prefetcher = Prefetcher()
        self.travelling: list[ScatteredBucket] = []
        self.in_backward = False  # the model as a whole
        self.zero_grad()

    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.shard = None
        self.present: set[nn.Parameter] = set()
        self.sharded.forget_gradients()

    def _before_forward(self, unit: Unit, module: nn.Module, args: tuple, kwargs: dict) -> None:
        unit.start_unshard()
        if not self.in_backward:  # there, activation checkpointing runs a part again
            self.prefetcher.forward(unit)
            inputs = [t for t in tensors_in((args, kwargs)) if t.grad_fn is not None]
            if torch.is_grad_enabled():
                unit.training_state, unit.calls = TrainingState.FORWARD, unit.calls + 1
            if inputs and unit is not self.root:
                register_multi_grad_hook(inputs, lambda _: self._after_backward(unit))
        unit.unshard()

    def _after_forward(self, unit: Unit, module: nn.Module, args: tuple, output: Any) -> None:
        if unit.training_state is TrainingState.BACKWARD:
            return
        nodes = [t.grad_fn for t in tensors_in(output) if t.grad_fn is not None]
        for node in () if self.in_backward else nodes:
            # Before the node runs, and after the unit behind this one has given up its memory.
            node.register_prehook(lambda _: self._before_backward(unit))
        if not nodes or (self.free_after_forward and unit is not self.root):
            unit.reshard()
        if unit is self.root and not self.in_backward:
            self.prefetcher.end_forward()
            if not nodes:
                self._reshard_all()

    def _before_backward(self, unit: Unit) -> None:
        if unit.training_state is not TrainingState.BACKWARD:
            unit.training_state = TrainingState.BACKWARD
            self._enter_backward()
            unit.unshard()

    @torch.no_grad()
    def _ready(self, unit: Unit, bucket: ScatteredBucket, parameter: nn.Parameter) -> None:
        """Backward has finished this parameter's gradient."""
        self._enter_backward()
        self.present.add(parameter)
        bucket.missing -= 1
        if bucket.missing == len(bucket.flat.parameters) // 4:
            # First the last unit's gradients travel, then the next one's parameters, when this
            # one's activations are mostly free: not all of it takes up memory at one time.
            self._arrive()
            self.prefetcher.backward(unit)

    @torch.no_grad()
    def _after_backward(self, unit: Unit) -> None:
        """Backward has the gradients of this unit's inputs, and before them of its parameters."""
        unit.calls -= 1
        if unit.calls == 0:
            unit.reshard()
            self._send(unit)

    def _enter_backward(self) -> None:
        if not self.in_backward:
            self.in_backward = True
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    @torch.no_grad()
    def _finish(self) -> None:
        """Backward is over: reshard what is still whole, send what has not left."""
        self._reshard_all()
        for unit in self.units.values():
            late = any(p.grad is not None for b in unit.buckets for p in b.flat.parameters)
            if late or unit.training_state is not TrainingState.POST_BACKWARD:
                self._send(unit)
        self._arrive()
        for unit in self.units.values():
            unit.training_state, unit.calls = TrainingState.IDLE, 0
        self.in_backward = False
        self.prefetcher.forget_calls()

    def _send(self, unit: Unit) -> None:
        self._arrive()
        for bucket in unit.buckets:
            bucket.send()
        self.travelling, unit.training_state = unit.buckets, TrainingState.POST_BACKWARD

    def _arrive(self) -> None:
        for bucket in self.travelling:
            bucket.arrive()
        self.travelling = []

    def reduce_gradients(self) -> None:
        """Give each piece of this rank its gradient; `step` and clipping call it."""
        if not self.sharded.ready:
            self.sharded.set_gradients([bucket.shard for bucket in self.buckets], self.present)

    def refresh(self) -> None:
        """Round to the model's precision; the next forward pass unshards."""
        self.sharded.round_to_shards()

    @contextmanager
    def whole_parameters(self) -> Iterator[None]:
        """All parameters whole, to be read; what is written to them is lost. All ranks enter."""
        for unit in self.units.values():
            unit.unshard()
        try:
            yield
        finally:
            self._reshard_all()

    def _reshard_all(self) -> None:
        for unit in self.units.values():
            unit.reshard()
