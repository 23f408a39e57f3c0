"""Saving state, and loading it at another number of ranks: who saves what, and in which form.

    trained with     saved by                     loaded by            as
    ZeRO             sharded.save                 sharded.load         pieces, by any N ranks
    ZeRO             sharded.save                 consolidate          state dicts of one process
    one process      torch.save                   load_whole           pieces of this rank
    a mesh           resumable.save               resumable.resume     whole tensors, by any mesh
    tensor_parallel  sharded_state                load_sharded, merge  parts, in that package

To read in this order:

    dcp_planners      pieces, runs of a flattened parameter, for torch.distributed.checkpoint
    zero_state        which pieces a rank has under ZeRO, by names that depend on nothing else
    sharded           a checkpoint that each rank writes its part of
    consolidated      from there to one process, and back
    three_d_state     the state of a mesh, in the names and shapes of one process
    resumable         checkpoints of that, which a run resumes from

Needs of its neighbours: zero and three_d, with what these need (collectives, make_optimizer, mesh,
schedules, tensor_parallel, context_parallel, pipeline, expert_parallel).
"""

from .consolidated import consolidate, load_whole
from .sharded import load, save
from .three_d_state import load_whole_state, whole_state

__all__ = ["consolidate", "load", "load_whole", "load_whole_state", "save", "whole_state"]
