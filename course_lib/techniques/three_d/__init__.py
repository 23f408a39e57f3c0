"""Data, context, tensor, pipeline and expert parallelism at once, with ZeRO over equal weights.

To read in this order:

    training         ThreeD: one rank's part of a GPT in training
    stages           which layers each pipeline stage has
    replica_rows     which rows of the batch each replica takes
    zero             ZeRO over the ranks with the same weights
    context_inputs   what it takes for a context axis
    compatibility    what does not go together, and why

Needs of its neighbours: mesh, schedules, tensor_parallel, context_parallel, pipeline,
expert_parallel, zero, and what these need, collectives and make_optimizer.
"""

from .compatibility import check
from .training import ThreeD

__all__ = ["ThreeD", "check"]
