"""Data parallelism: a replica of the model on every rank, each with its own part of the batch.

To read in this order:

    naive                      what it is, in ten lines
    sampler                    which samples are whose
    buckets                    gradients that travel together
    distributed_data_parallel  DataParallel: they travel while backward goes on
    uneven_inputs              ranks that have more samples than others
    clipping                   once, after the average
    horovod_optimizer          Horovod's way to the same end

Needs of its neighbours: collectives (fusion, broadcast).
"""

from .clipping import clip_gradients
from .distributed_data_parallel import DataParallel
from .horovod_optimizer import DistributedOptimizer
from .naive import NaiveDataParallel
from .sampler import ShardSampler
from .uneven_inputs import agree

__all__ = [
    "DataParallel",
    "DistributedOptimizer",
    "NaiveDataParallel",
    "ShardSampler",
    "agree",
    "clip_gradients",
]
