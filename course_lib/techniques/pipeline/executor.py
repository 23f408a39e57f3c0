"""Running a pipeline schedule, whichever, on real ranks.

    schedule = one_f_one_b(4, 8)                      a table; see schedules/
    parts = cut(layers, split_by_cost(costs, 4))      the model; see partition.py
    pipeline = Pipeline({rank: parts[rank]}, schedule, loss)
    loss = pipeline.train_step(inputs, targets)       gradients are in .grad

There is one loop: take the next operation of this rank's row, wait for what it needs, run it, send
on what comes out. Each operation runs under a span of its name ("F0.3"), so PyTorch's profiler and
this course show what ran by the names in the table.

The batch is cut into m microbatches, whose losses are means over equally many samples. Each loss is
divided by m before its backward pass, so the gradients add up to those of the whole batch.
"""

from collections.abc import Collection, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.techniques.collectives import broadcast_state
from course_lib.techniques.schedules import (
    BACKWARD,
    BACKWARD_INPUT,
    FORWARD,
    Op,
    Schedule,
    num_microbatches,
    num_stages,
    validate,
)

from .handover import Handover
from .mailbox import Mailbox
from .messages import open_groups, plan
from .partition import check_modules, stages_of
from .replicas import average_gradients
from .stage import Before, Loss, Stage, StageError
from .tied_weights import tie


class Pipeline:
    """One rank's part of a pipeline.

    modules: stage -> module, for the stages that `schedule` gives to this rank. A module takes one
        tensor and returns one.
    loss: (output, target) -> mean over the samples; runs on the last stage.
    group: the ranks of the pipeline (None: all), one for each row of the schedule.
    data_group: ranks with the same stages in other pipelines. They start with the parameters of
        its first rank, and gradients are averaged over them.
    tied: for each weight that several stages share, its copies: (stage, name of the parameter).
    recompute: stages that keep only their inputs between forward and backward (True: all).
    before: called with a microbatch's number before each forward pass of it, on every stage; for
        what modules must know of it besides the tensor that they get.

    Every rank of the group makes it with the same arguments, `modules` aside. Raises `ValueError`
    before any message is sent if these do not fit together or the schedule cannot run.
    """

    def __init__(
        self,
        modules: Mapping[int, nn.Module],
        schedule: Schedule,
        loss: Loss,
        *,
        group: dist.ProcessGroup | None = None,
        data_group: dist.ProcessGroup | None = None,
        tied: Sequence[Sequence[tuple[int, str]]] = (),
        recompute: bool | Collection[int] = False,
        before: Before = lambda microbatch: None,
    ) -> None:
        validate(schedule)
        self.schedule, self.data_group = schedule, data_group
        self.rank = dist.get_rank(group)
        self.microbatches, self.last = num_microbatches(schedule), num_stages(schedule) - 1
        check_modules(modules, schedule, self.rank, dist.get_world_size(group))
        self.stages = {
            stage: Stage(
                modules[stage],
                loss if stage == self.last else None,
                self.microbatches,
                recompute if isinstance(recompute, bool) else stage in recompute,
                before,
            )
            for stage in stages_of(schedule, self.rank)
        }
        messages = plan(schedule)
        groups = open_groups(messages, group)
        device = _device_of(self.parameters())
        forwards = [message for message in messages if message.result.kind == FORWARD]
        self._training, self._evaluating = (
            Handover(Mailbox(sent, self.rank, groups, device), self.stages, self.last)
            for sent in (messages, forwards)
        )
        self.losses: list[torch.Tensor] = []  # of the last batch's microbatches, on the last stage
        if data_group is not None:
            for stage in self.stages.values():
                broadcast_state(stage.module, data_group)
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        modules_here = {stage: held.module for stage, held in self.stages.items()}
        self._tied = tie(tied, schedule, modules_here, ranks)

    def parameters(self) -> list[nn.Parameter]:
        """Parameters of this rank's stages, each once."""
        modules = (stage.module for stage in self.stages.values())
        return list(dict.fromkeys(p for module in modules for p in module.parameters()))

    def train_step(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor | None:
        """All passes of one batch; adds its gradients to `.grad`, as `backward` does.

        inputs, targets: (B, ...), on every rank. Only the rank of the first stage reads the inputs
        and that of the last the targets; a tensor of the right shape on device "meta" is enough for
        the others. Returns the mean loss on the rank of the last stage, None elsewhere.
        """
        loss = self._run(self._training, self.schedule[self.rank], inputs, targets)
        for weight in self._tied:
            weight.sum_gradients()
        if self.data_group is not None:
            average_gradients(self.parameters(), self.data_group)
        return loss

    def evaluate(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor | None:
        """The mean loss in evaluation mode, as `train_step` returns it; nothing is kept."""
        row = [op for op in self.schedule[self.rank] if op.kind == FORWARD]
        modules = [stage.module for stage in self.stages.values()]
        before = [module.training for module in modules]
        for module in modules:
            module.eval()
        try:
            return self._run(self._evaluating, row, inputs, targets)
        finally:
            for module, training in zip(modules, before, strict=True):
                module.train(training)

    # --------------------------------------------------------------------------------------------
    # The loop
    # --------------------------------------------------------------------------------------------

    def _run(
        self, handover: Handover, row: Sequence[Op], inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor | None:
        xs, ys = self._cut_batch(inputs), self._cut_batch(targets)
        self.losses.clear()
        handover.mailbox.begin((inputs.shape, inputs.dtype))
        for op in row:
            first = op.kind == FORWARD and op.stage == 0
            arrived = xs[op.microbatch] if first else handover.take(op)
            with record_function(str(op)):
                try:
                    result = self._compute(handover, op, arrived, ys[op.microbatch])
                except Exception as error:
                    raise StageError.told(op, error) from error
                handover.give(op, result)
        handover.mailbox.finish()
        return torch.stack(self.losses).mean() if self.losses else None

    def _compute(
        self, handover: Handover, op: Op, arrived: torch.Tensor | None, target: torch.Tensor
    ) -> torch.Tensor | None:
        """Run `op`: what another stage takes from it, or a loss, which is noted."""
        kind, stage, microbatch = op
        at = self.stages[stage]
        if kind == FORWARD:
            assert arrived is not None  # the batch, or an activation
            run = at.evaluate if handover is self._evaluating else at.forward
            output = run(microbatch, arrived, target)
            if stage == self.last:
                self.losses.append(output.detach())
            return output
        if kind == BACKWARD:
            return at.backward(microbatch, arrived)
        if kind == BACKWARD_INPUT:
            return at.backward_input(microbatch, arrived)
        at.backward_weight(microbatch)
        return None

    def _cut_batch(self, batch: torch.Tensor) -> Sequence[torch.Tensor]:
        if len(batch) % self.microbatches or not len(batch):
            raise ValueError(
                f"a batch of {len(batch)} samples does not divide into {self.microbatches} "
                "microbatches of equal size"
            )
        return batch.detach().chunk(self.microbatches)


def _device_of(parameters: Sequence[nn.Parameter]) -> torch.device:
    return parameters[0].device if parameters else torch.device("cpu")
