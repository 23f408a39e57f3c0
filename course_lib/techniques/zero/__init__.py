"""ZeRO: what data parallelism repeats on every rank, each rank keeps an N-th of.

To read in this order:

    flat_shards          many parameters in one buffer, cut into equal shards
    sharded_optimizer    any optimizer of torch, over this rank's pieces
    clipping             the norm of a gradient that nobody has whole
    sharded_training     what the three stages have in common
    zero1                optimizer state sharded
    scattered_buckets    gradients reduce-scattered while backward goes on
    zero2                gradients too, bucket by bucket
    unshard_reshard      parameters that are whole only while they are needed
    prefetch             and that begin to travel before
    zero3                parameters too

Needs of its neighbours: collectives (fusion, broadcast, torch_compat), make_optimizer.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020.
"""

from .zero1 import Zero1
from .zero2 import Zero2
from .zero3 import Zero3

__all__ = ["Zero1", "Zero2", "Zero3"]
