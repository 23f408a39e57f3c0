"""Buckets: gradients that travel together, in the order in which backward makes them.

    parameters in order of use      w1  b1  w2  b2  w3  b3
    gradients in order of making    b3  w3 | b2  w2  b1 | w1
                                    first    further buckets

Backward begins at the last layer, so buckets are filled from the last parameter to the first. The
first bucket is small, so that the network has something to do early; the others are large, so that
latency is paid seldom. PyTorch's DistributedDataParallel takes 1 MiB and 25 MiB (Li et al.,
"PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020).
"""

from collections.abc import Sequence

import torch
from torch import nn

from course_lib.techniques.collectives.fusion import pack

FIRST_BUCKET_BYTES = 2**20
BUCKET_BYTES = 25 * 2**20


def assign_buckets(
    parameters: Sequence[nn.Parameter],
    bucket_bytes: int = BUCKET_BYTES,
    first_bucket_bytes: int = FIRST_BUCKET_BYTES,
) -> list[list[nn.Parameter]]:
    """Split `parameters`, given in order of use, into buckets in order of departure.

    Neighbours of one dtype and device share a bucket while they fit; a parameter that is larger
    than a bucket goes alone.
    """
    order = list(reversed(parameters))
    first = next(pack(order, min(first_bucket_bytes, bucket_bytes)), [])
    rest = list(pack(order[len(first) :], bucket_bytes))
    return [first, *rest] if first else []


class Bucket:
    """The gradients of some parameters in one flat buffer, which is what is all-reduced.

    views: for each parameter the part of the buffer that is its gradient, in its shape. A `.grad`
        that is this view needs no copy on the way back, and no second memory.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]):
        self.parameters = list(parameters)
        sizes = [parameter.numel() for parameter in self.parameters]
        like = self.parameters[0]
        self.buffer = torch.zeros(sum(sizes), dtype=like.dtype, device=like.device)  # (numel,)
        parts = self.buffer.split(sizes)
        self.views = [p.view(q.shape) for p, q in zip(parts, self.parameters, strict=True)]
        self.begin()

    def begin(self) -> None:
        """Expect all gradients: a new backward pass starts."""
        self.missing = len(self.parameters)

    def fill(self, scale: float) -> list[nn.Parameter]:
        """Put `scale` times each gradient into the buffer; return the parameters that have none.

        From here on the gradients are the views. One copy of them all, when the bucket is complete,
        costs less time than one in each hook.
        """
        absent, gradients, targets = [], [], []
        for parameter, view in zip(self.parameters, self.views, strict=True):
            gradient = parameter.grad
            if gradient is None:
                absent.append(parameter)
                view.zero_()
            elif gradient.data_ptr() != view.data_ptr():  # else backward has added to the view
                gradients.append(gradient)
                targets.append(view)
                parameter.grad = view
        if targets:
            torch._foreach_copy_(targets, gradients)
        self.buffer.mul_(scale)
        return absent
