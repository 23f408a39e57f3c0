"""What answers to notebook 07 share."""

import torch
from torch import nn


def written_back(flat, tensors):
    with torch.no_grad():
        for t in tensors:
            t.copy_(flat[: t.numel()].view_as(t))
            flat = flat[t.numel() :]


def learning(model):
    return [p for p in model.parameters() if p.requires_grad]


def masters(
    model, make_optimizer, down=None, up=None, keep=False, choose=learning, anew=False, begin=None
):
    own = choose(model)
    begin = begin or torch.clone
    copies = [nn.Parameter(begin(p.detach()).float()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, copy in zip(own, copies, strict=True):
            if anew:
                copy.data.copy_(p)
            copy.grad = down(p) if down else p.grad.float()
        optimizer.step()
        for p, copy in zip(own, copies, strict=True):
            p.data.copy_(up(copy.detach()) if up else copy)
            if not keep:
                copy.grad = None

    return step
