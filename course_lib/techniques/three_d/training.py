"""3D parallelism: data, tensor and pipeline parallelism at once, and context parallelism as a 4th.

    mesh = Mesh(pipeline=2, data=2, tensor=2)
    training = ThreeD(model, mesh, one_f_one_b(2, 4), make_optimizer, zero=1)
    loss = training.train_step(tokens, targets)          the same on every rank

Nothing here is new: each axis is one of the techniques before, in a group of its own.

    tensor      a layer's matrices are cut          tensor_parallel
    pipeline    the layers are cut, by cost         pipeline
    context     the sequences are cut               context_parallel
    data        the batch is cut                    pipeline.replicas, or zero
    expert      parts of the data axis: tokens      expert_parallel
                go to experts on other ranks

All ranks of the data and context axes have the same weights but for experts, so gradients and
optimizer state meet over both at once, as among so many replicas.

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
SC 2021, section 3 (arXiv 2104.04473); Llama 3, section 3.3.2 (arXiv 2407.21783).
"""

from typing import Any

import torch
import torch.distributed as dist

from course_lib.techniques.expert_parallel import (
    ExpertGroups,
    ExpertParallelGPT,
    average_gradients,
    equal_start,
    mixtures_of,
)
from course_lib.techniques.expert_parallel.gpt import is_mixture
from course_lib.techniques.make_optimizer import MakeOptimizer
from course_lib.techniques.mesh import Mesh
from course_lib.techniques.pipeline import Pipeline, stages_of
from course_lib.techniques.pipeline.partition import cut
from course_lib.techniques.pipeline.stage import Loss
from course_lib.techniques.schedules import Schedule, num_microbatches
from course_lib.techniques.tensor_parallel import (
    TensorParallelGPT,
    WholeGPT,
)

from .compatibility import check
from .context_inputs import Sequences, loss_over
from .replica_rows import rows_of
from .stages import Stages, ends_of, layers_of, paths_of, split_stages
from .zero import Zero, shard_over_replicas, trainings_in


class ThreeD:
    """One rank's part of a GPT in training.

    model: a GPT of one process, as `TensorParallelGPT.from_model` takes it, equal on all ranks.
    mesh: has as many ranks as the default group.
    schedule: a table with a row for each rank of the pipeline axis.
    make_optimizer: builds the optimizer from parameter groups.
    zero: what ranks with the same weights shard: 0 nothing, 1 optimizer state, 2 gradients, 3
        parameters too.
    recompute: keep only the inputs of the stages between forward and backward.
    master_dtype: precision of the optimizer's copy of the weights, if not the model's.

    Raises `ValueError`, before any message is sent, for sizes that do not divide and for what does
    not go together.

    experts: the groups of the experts, where the model has some.
    optimizer: of all parameters of this rank; None with ZeRO.
    zeros: trainings by ZeRO, of which each has its own group: none, one, or one more for experts.
    """

    def __init__(
        self,
        model: WholeGPT,
        mesh: Mesh,
        schedule: Schedule,
        make_optimizer: MakeOptimizer,
        *,
        zero: int = 0,
        recompute: bool = False,
        master_dtype: torch.dtype | None = None,
    ) -> None:
        tied = model.head.projection.weight is model.embedding.tokens.weight
        check(model, mesh, schedule, zero, master_dtype)
        mesh.check_world_size(dist.get_world_size())
        self.mesh, self.schedule = mesh, schedule
        self.coordinates = mesh.coordinates(dist.get_rank())
        device = next(model.parameters()).device
        opened = mesh.open(device.type)
        self.groups = {axis: opened.get_group(axis) for axis in mesh.order}
        self.replicas = self._open_replicas()

        parallel = self._parallel(model)
        loss: Loss = parallel.token_loss
        if mesh.context > 1:
            loss = loss_over(parallel, self.groups["context"])
        layers = layers_of(parallel)
        parts = cut(layers, split_stages(model, schedule))
        own = stages_of(schedule, self.coordinates["pipeline"])
        self.stages = Stages({stage: parts[stage] for stage in own}, paths_of(model))
        self.sequences: Sequences | None = None
        if mesh.context > 1:
            self.sequences = Sequences(self.stages, self.groups["context"])
        self.shapes = {name: p.shape for name, p in self.stages.named_parameters()}
        self.device = device
        self.pipeline = Pipeline(
            {0: self.stages} if zero == 3 else {stage: parts[stage] for stage in own},
            schedule,
            loss,
            group=self.groups["pipeline"],
            data_group=None if zero or self.experts else self.replicas,
            tied=[ends_of(model, schedule)] if tied and len(parts) > 1 else [],
            recompute=recompute,
            before=self._turn_to,
        )
        for mixture in mixtures_of(self.stages):
            mixture.loss_scale = 1 / num_microbatches(schedule)
        self.zeros: list[Zero] = []
        self.optimizer: torch.optim.Optimizer | None = None
        self.stepping: Any
        if zero:
            self.stepping = shard_over_replicas(
                self.stages, make_optimizer, zero, self.replicas, self.experts, master_dtype
            )
            self.zeros = trainings_in(self.stepping)
        else:
            if self.experts:
                equal_start(self.stages, self.experts)
            trainable = [p for p in self.pipeline.parameters() if p.requires_grad]
            self.optimizer = self.stepping = make_optimizer([{"params": trainable}])

    def train_step(
        self,
        tokens: torch.Tensor,
        targets: torch.Tensor,
        documents: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """One step on a batch (B, T), whole on every rank; returns its mean loss, on every rank.

        Each replica takes its B / data rows, in m microbatches, and of these each rank of the
        context axis its T / context tokens. The mean is over the tokens of each microbatch, then
        over these.

        documents: (B, T), where several are packed into a sequence: no token sees another document,
            and each has positions of its own. See context_parallel/packed_documents.py.
        """
        self.stepping.zero_grad()
        loss = self.pipeline.train_step(*self.part_of(tokens, targets, documents))
        if self.experts and not self.zeros:
            average_gradients(self.stages, self.experts)
        self.stepping.step()
        return self._tell_loss(loss)

    def _parallel(self, model: WholeGPT) -> TensorParallelGPT:
        """The parts of the model over the tensor axis, and of its experts over the expert axis."""
        self.experts = None
        if not any(is_mixture(block.mlp) for block in model.blocks):
            return TensorParallelGPT.from_model(model, self.groups["tensor"])
        self.experts = ExpertGroups.open(self.mesh, self.groups | {"data": self.replicas})
        return ExpertParallelGPT.from_model(model, self.experts)

    def part_of(
        self,
        tokens: torch.Tensor,
        targets: torch.Tensor,
        documents: torch.Tensor | None = None,
    ) -> list[torch.Tensor]:
        """Tokens and targets: the rows of this replica, and of these the part of this rank."""
        batch = [tokens, targets] if documents is None else [tokens, targets, documents]
        microbatches = num_microbatches(self.schedule)
        rows = rows_of(self.coordinates["data"], self.mesh.data, microbatches, batch)
        if documents is not None:
            documents = rows.pop()
            self.sequences = self.sequences or Sequences(self.stages)
        return self.sequences.begin(rows, documents, microbatches) if self.sequences else rows

    def _turn_to(self, microbatch: int) -> None:
        if self.sequences is not None:
            self.sequences.turn_to(microbatch)

    def _open_replicas(self) -> dist.ProcessGroup:
        """The ranks with the weights of this one."""
        if self.mesh.context == 1:
            return self.groups["data"]
        group, _ = dist.new_subgroups_by_enumeration(self.mesh.groups("data_context"))
        return group

    def _tell_loss(self, loss: torch.Tensor | None) -> torch.Tensor:
        """The mean over the data axis, from the last stage to all."""
        total = torch.zeros(1, dtype=torch.float64, device=self.device)
        if loss is not None:
            total += loss
        dist.all_reduce(total, group=self.groups["pipeline"])
        dist.all_reduce(total, group=self.groups["data"])
        return total[0] / self.mesh.data
