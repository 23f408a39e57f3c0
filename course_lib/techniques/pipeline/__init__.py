"""Pipeline parallelism: a run of the layers on every rank, and several microbatches in flight.

To read in this order:

    partition           the model cut into stages of equal cost, and which a rank holds
    messages            what travels between stages, and on which groups
    mailbox             sends and receives under way
    handover            from stage to stage, whether on another rank or on the same
    stage               forward and backward of one stage, microbatch by microbatch
    executor            Pipeline: runs any schedule
    replicas            several pipelines side by side
    tied_weights        one weight on several stages
    split_backward      the two halves of a backward pass, for zero-bubble schedules
    weight_stashing     PipeDream: no flush, several versions of the weights

Needs of its neighbours: schedules (which table to run), collectives (broadcast).
"""

from .executor import Pipeline
from .partition import cut, layer_costs, split_by_cost, stages_of
from .stage import Stage, StageError
from .weight_stashing import PipeDream

__all__ = [
    "PipeDream",
    "Pipeline",
    "Stage",
    "StageError",
    "cut",
    "layer_costs",
    "split_by_cost",
    "stages_of",
]
