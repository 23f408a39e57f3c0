"""ZeRO on a mesh: sharded over the ranks with the same weights, whatever axes those are on.

all weights but experts     the ranks of the data and context axes
experts                     fewer: see expert_parallel/zero.py
"""

import torch
import torch.distributed as dist
from torch import nn

from course_lib.techniques.expert_parallel import ExpertGroups, ExpertZero
from course_lib.techniques.make_optimizer import MakeOptimizer
from course_lib.techniques.zero import Zero1, Zero2, Zero3

Zero = Zero1 | Zero2 | Zero3

_STAGES = {1: Zero1, 2: Zero2, 3: Zero3}


def shard_over_replicas(
    model: nn.Module,
    make_optimizer: MakeOptimizer,
    stage: int,
    replicas: dist.ProcessGroup,
    experts: ExpertGroups | None,
    master_dtype: torch.dtype | None,
) -> Zero | ExpertZero:
    """The training of this rank's layers by a stage of ZeRO.

    replicas: the ranks with the same weights. experts: the groups of the experts, if there are any.
    """
    if experts:
        return ExpertZero(model, make_optimizer, experts, stage, master_dtype=master_dtype)
    return _STAGES[stage](model, make_optimizer, replicas, master_dtype=master_dtype)


def trainings_in(zero: Zero | ExpertZero) -> list[Zero]:
    """Those that each have a group of their own: one, or one more for experts."""
    return [zero.dense, zero.experts] if isinstance(zero, ExpertZero) else [zero]
