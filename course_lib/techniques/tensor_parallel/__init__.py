"""Tensor parallelism: several ranks share every layer, each with a part of its matrices.

To read in this order:

    f_and_g          f, g and their kin: what crosses between ranks, forward and backward
    linear           a matrix by columns, by rows
    mlp, attention   a pair of them, with one all-reduce each way
    vocabulary       embedding and cross-entropy
    sequence         the same bytes, with 1/t of the tokens between the layers
    random_streams   dropout and initial values that agree where they must
    block, gpt       all of it, as one model
    state            from one process to t ranks and back
    overlap          the all-reduce hidden behind the weight gradients
    axis             the group of ranks, and which part each holds

Needs of its neighbours: collectives.

Every module takes the process group of the ranks that share it (`group`, None for all ranks), so
the same code is the tensor axis of a larger mesh.
"""

from .attention import ParallelAttention
from .block import (
    ParallelBlock,
    ParallelGPTEmbedding,
    ParallelGPTHead,
)
from .gpt import TensorParallelGPT, WholeGPT
from .linear import ColumnParallelLinear, RowParallelLinear
from .mlp import ParallelMLP
from .random_streams import Dropout, separate_stream
from .sequence import sum_replicated_gradients
from .state import (
    gather_whole,
    load_sharded,
    load_whole,
    merge,
    sharded_state,
    shares_of,
)
from .vocabulary import (
    VocabParallelEmbedding,
    vocab_parallel_cross_entropy,
    vocab_parallel_loss,
)

__all__ = [
    "ColumnParallelLinear",
    "Dropout",
    "ParallelAttention",
    "ParallelBlock",
    "ParallelGPTEmbedding",
    "ParallelGPTHead",
    "ParallelMLP",
    "RowParallelLinear",
    "TensorParallelGPT",
    "VocabParallelEmbedding",
    "WholeGPT",
    "gather_whole",
    "load_sharded",
    "load_whole",
    "merge",
    "separate_stream",
    "sharded_state",
    "shares_of",
    "sum_replicated_gradients",
    "vocab_parallel_cross_entropy",
    "vocab_parallel_loss",
]
