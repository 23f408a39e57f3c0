"""What the three stages of ZeRO have in common: a step is reduce, step the shards, refresh."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.techniques.collectives.broadcast import broadcast_state
from course_lib.techniques.collectives.torch_compat import all_gather_single
from course_lib.techniques.make_optimizer import MakeOptimizer

from .flat_shards import FlatShards
from .sharded_optimizer import ShardedOptimizer


class ShardedTraining:
    """Trains `model` on the ranks of `group`, with what a stage shards sharded over them.

    Ranks start with the parameters and buffers of the group's first rank. Gradients are averaged.
    A parameter counts as having a gradient if it has one on any rank. `param_groups` and
    `master_dtype` are those of `ShardedOptimizer`.

    trainable: the model's parameters that are trained, a tied one once.
    flats: their layouts; frozen: layout and shard of those that are sharded and not trained.
    sharded: the optimizer of this rank's shards.
    optimizer: torch's own, over this rank's pieces; a learning rate schedule takes it.
    """

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: MakeOptimizer,
        group: dist.ProcessGroup | None = None,
        *,
        param_groups: Sequence[Mapping[str, Any]] | None = None,
        master_dtype: torch.dtype | None = None,
    ) -> None:
        self.model, self.group = model, group
        broadcast_state(model, group)
        self.trainable = [p for p in model.parameters() if p.requires_grad]
        self.flats: list[FlatShards] = []
        self.frozen: list[tuple[FlatShards, torch.Tensor]] = []
        shards = self._shard()
        if param_groups is None:
            # In the model's order, whatever order the stage lays them out in.
            param_groups = [{"params": self.trainable}]
        self.sharded = ShardedOptimizer(
            self.flats, shards, make_optimizer, param_groups, master_dtype, group
        )
        self.optimizer = self.sharded.optimizer
        self._watch()

    def _shard(self) -> list[torch.Tensor]:
        """Lay out the parameters in `flats`; returns this rank's shard of each."""
        raise NotImplementedError

    def _watch(self) -> None:
        """Register the hooks by which gradients get where the stage wants them."""
        raise NotImplementedError

    def reduce_gradients(self) -> None:
        """Give each piece of this rank the average gradient, if it does not have it yet."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Let the model have what the ranks' shards hold."""
        raise NotImplementedError

    def step(self) -> None:
        """What the optimizer would do on one device with the gradient of the whole batch."""
        self.reduce_gradients()
        with record_function("step of the shard"):
            self.sharded.step()
        self.refresh()

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Scale the average gradient to a global norm of at most `max_norm`; returns the norm."""
        self.reduce_gradients()
        return self.sharded.clip_grad_norm_(max_norm)

    def state_dict(self) -> dict[str, Any]:
        """This rank's shards; see `techniques.checkpoints` for other world sizes."""
        return self.sharded.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a `state_dict` of the same rank, world size and stage."""
        self.sharded.load_state_dict(state)
        self.refresh()


class WholeParameters(ShardedTraining):
    """Stages 1 and 2: every rank keeps all parameters, as views of flat buffers.

    Frozen parameters stay as they are. Do not move or convert the model after this.

    values: the buffer of each of `flats`, (padded,).
    """

    def _flatten(self, runs: Iterable[list[nn.Parameter]]) -> list[torch.Tensor]:
        """A buffer for each run of parameters; returns this rank's shards, which are views too."""
        self.flats = [FlatShards(run, self.group) for run in runs]
        self.values = [flat.join(flat.parameters) for flat in self.flats]
        for flat, values in zip(self.flats, self.values, strict=True):
            for parameter, view in zip(flat.parameters, flat.views(values), strict=True):
                parameter.data = view
        return [flat.own(values) for flat, values in zip(self.flats, self.values, strict=True)]

    def refresh(self) -> None:
        """Fill the parameters with the shards of all ranks."""
        self.sharded.round_to_shards()
        with record_function("all-gather parameters"):
            for flat, values in zip(self.flats, self.values, strict=True):
                all_gather_single(values, flat.own(values), group=self.group)
