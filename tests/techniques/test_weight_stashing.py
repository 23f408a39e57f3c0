"""PipeDream's weights are those of a delayed update, and without stashing they are not."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.ranks import collect
from course_lib.techniques.pipeline.weight_stashing import PipeDream

MINIBATCHES, RATE = 9, 0.2
mse = nn.functional.mse_loss


def parts(p):
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(p)]


def batch():
    return torch.randn(2, 2 * MINIBATCHES, 4, generator=torch.Generator().manual_seed(1))


def delayed(p):
    """One process: minibatch k meets the weights of stage s after the updates by 0 ... k-(p-s)."""
    modules = parts(p)
    versions = [[{n: w.detach() for n, w in part.named_parameters()}] for part in modules]
    losses = []
    for k, (x, y) in enumerate(zip(*(t.chunk(MINIBATCHES) for t in batch()), strict=True)):
        used = [
            {n: w.clone().requires_grad_() for n, w in versions[s][max(0, k - (p - s) + 1)].items()}
            for s in range(p)
        ]
        for part, weights in zip(modules, used, strict=True):
            x = torch.func.functional_call(part, weights, (x,))
        loss = mse(x, y)
        losses.append(loss.item())
        loss.backward()
        for s, weights in enumerate(used):
            newest = versions[s][-1]
            versions[s].append({n: newest[n] - RATE * w.grad for n, w in weights.items()})
    return losses, [of_stage[-1] for of_stage in versions]


def on_ranks(stash):
    p, rank = dist.get_world_size(), dist.get_rank()
    pipeline = PipeDream(parts(p)[rank], MINIBATCHES, mse, RATE, stash=stash)
    losses = pipeline.train(*batch())
    newest = {n: w.detach() for n, w in pipeline.stage.newest.items()}
    wanted_losses, wanted = delayed(p)
    same = all(torch.equal(newest[n], w) for n, w in wanted[rank].items())
    return losses, wanted_losses, same, pipeline.stage.most_versions


@pytest.mark.parametrize("p", [1, 3])
def test_every_update_is_a_true_gradient_of_older_weights(p):
    results = collect(on_ranks, p, (True,))
    for rank, (losses, wanted, same, versions) in enumerate(results):
        assert same
        assert losses == (wanted if rank == p - 1 else [])
        assert versions == p - rank


def test_without_stashing_it_is_the_gradient_of_nothing():
    results = collect(on_ranks, 3, (False,))
    assert [same for _, _, same, _ in results] == [False, False, False]
    assert [versions for *_, versions in results] == [1, 1, 1]
