"""Known answers to master_weights."""

import torch
from torch import nn

from course_lib.checks.known_answers import right, wrong

from ._common import learning, masters, written_back


@right
def master_weights(model, make_optimizer):
    masters = {p: nn.Parameter(p.detach().float()) for p in model.parameters() if p.requires_grad}
    optimizer = make_optimizer(masters.values())

    def step():
        for p, master in masters.items():
            master.grad = p.grad.to(torch.float32)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for p, master in masters.items():
            p.data.copy_(master.data)

    return step


@right
def master_weights_flat(model, make_optimizer):
    """All copies in one tensor."""
    own = [p for p in model.parameters() if p.requires_grad]
    flat = nn.Parameter(torch.cat([p.detach().float().view(-1) for p in own]))
    optimizer = make_optimizer([flat])

    def step():
        flat.grad = torch.cat([p.grad.view(-1) for p in own]).float()
        optimizer.step()
        flat.grad = None
        written_back(flat, own)

    return step


@wrong(says="has not moved in 60 steps")
def bfloat16_alone(model, make_optimizer):
    return make_optimizer(learning(model)).step


@wrong(says="has not moved in 60 steps")
def copies_made_anew(model, make_optimizer):
    return masters(model, make_optimizer, anew=True)


@wrong(says="that makes 20 bytes per parameter of 16")
def fp32_gradients_stay(model, make_optimizer):
    return masters(model, make_optimizer, keep=True)


@wrong(says="is no longer bfloat16")
def all_in_fp32(model, make_optimizer):
    model.float()
    return masters(model, make_optimizer)


@wrong(says="does not step on fp32 copies")
def float64_copies(model, make_optimizer):
    own = learning(model)
    copies = [nn.Parameter(p.detach().double()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, copy in zip(own, copies, strict=True):
            copy.grad = p.grad.double()
        optimizer.step()
        optimizer.zero_grad()
        for p, copy in zip(own, copies, strict=True):
            p.data.copy_(copy)

    return step


@wrong(says="more fp32 copies than parameters that learn")
def copies_of_the_frozen(model, make_optimizer):
    return masters(
        model,
        make_optimizer,
        down=lambda p: None if p.grad is None else p.grad.float(),
        choose=lambda model: list(model.parameters()),
    )


@wrong(says="return the function step itself")
def no_step(model, make_optimizer):
    masters(model, make_optimizer)
