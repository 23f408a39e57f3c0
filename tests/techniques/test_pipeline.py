"""Any schedule, run on real ranks, gives the gradients of one process to the last bit."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.ranks import collect
from course_lib.techniques.pipeline import Pipeline, stages_of
from course_lib.techniques.pipeline.partition import cut, split_by_cost
from course_lib.techniques.schedules import (
    gpipe,
    interleaved,
    naive,
    num_microbatches,
    num_stages,
    one_f_one_b,
    zb_h1,
)

WIDTH, LAYERS = 6, 8


def layers(dtype=torch.float32):
    """(B, 6) -> (B, 6): eight layers, so that four ranks can hold two stages each."""
    torch.manual_seed(1)
    made = []
    for i in range(LAYERS):
        extra = [nn.LayerNorm(WIDTH)] if i % 3 == 1 else [nn.Tanh()]
        made.append(nn.Sequential(nn.Linear(WIDTH, WIDTH), *extra))
    return nn.Sequential(*made).to(dtype)


def batch(m, per_microbatch=2):
    generator = torch.Generator().manual_seed(m)
    return torch.randn(2, m * per_microbatch, WIDTH, generator=generator)


def parts_of(model, stages):
    return cut(model, split_by_cost([1] * len(model), stages))


def gradients(model, prefix=""):
    return {
        prefix + name: None if p.grad is None else p.grad.clone()
        for name, p in model.named_parameters()
    }


def one_process(model, m, loss=nn.functional.mse_loss, steps=1):
    """The oracle: one microbatch after the other, gradients added up in `.grad`."""
    losses = []
    for _ in range(steps):
        x, y = batch(m)
        of_step = []
        for x_i, y_i in zip(x.chunk(m), y.chunk(m), strict=True):
            loss_i = loss(model(x_i), y_i)
            of_step.append(loss_i.detach())
            if loss_i.requires_grad:
                (loss_i / m).backward()
        losses.append(torch.stack(of_step).mean())
    return losses[-1], gradients(model)


def freeze(model, frozen):
    for i in frozen:
        model[i].requires_grad_(False)


def my_modules(schedule, frozen=()):
    model = layers()
    freeze(model, frozen)
    parts = parts_of(model, num_stages(schedule))
    return {stage: parts[stage] for stage in stages_of(schedule, dist.get_rank())}


def run_cases(cases):
    """On a rank: what differs from one process, case by case, and which parameters were seen.

    The one process runs here too: a rank has fewer threads, and sums depend on their number.
    """
    known = {}
    results = []
    for schedule, frozen, recompute in cases:
        m = num_microbatches(schedule)
        if (m, frozen) not in known:
            model = layers()
            freeze(model, frozen)
            known[m, frozen] = one_process(model, m)
        loss, expected = known[m, frozen]
        modules = my_modules(schedule, frozen)
        pipeline = Pipeline(modules, schedule, nn.functional.mse_loss, recompute=recompute)
        own_loss = pipeline.train_step(*batch(m))
        is_last = num_stages(schedule) - 1 in modules
        wrong = [] if is_last == (own_loss is not None) else ["a loss where none is due"]
        if is_last and not torch.equal(own_loss, loss):
            wrong.append(f"loss {own_loss}, not {loss}")
        names = []
        for module in modules.values():
            for name, found in gradients(module).items():
                names.append(name)
                want = expected[name]
                if (found is None) != (want is None):
                    wrong.append(f"{name}: {found}, not {want}")
                elif want is not None and not torch.equal(found, want):
                    wrong.append(f"{name} differs by {(found - want).abs().max():.1e}")
        if any(stage.in_flight for stage in pipeline.stages.values()):
            wrong.append("microbatches are still in flight")
        results.append((names, wrong))
    return results


def schedules(p):
    for m in range(1, 9):
        yield gpipe(p, m)
        yield one_f_one_b(p, m)
        yield zb_h1(p, m)
        if m % min(p, m) == 0 and p * 2 <= LAYERS:
            yield interleaved(p, m, 2)
    yield naive(p)


FROZEN = [(), (0, 1), (3, 4), tuple(range(LAYERS - 1)), tuple(range(LAYERS))]


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_gradients_are_those_of_one_process_to_the_last_bit(p):
    cases = [(schedule, (), False) for schedule in schedules(p)]
    for schedule in (gpipe(p, 3), one_f_one_b(p, 5), zb_h1(p, 4), interleaved(p, 2 * p, 2)):
        cases += [(schedule, frozen, False) for frozen in FROZEN[1:]]
        cases += [(schedule, FROZEN[1], True), (schedule, (), {0})]
    names = sorted(gradients(layers()))
    by_rank = collect(run_cases, p, (cases,), observe=False, timeout=90)
    for case, of_ranks in zip(cases, zip(*by_rank, strict=True), strict=True):
        assert [wrong for _, wrong in of_ranks] == [[]] * p, case
        assert sorted(name for seen, _ in of_ranks for name in seen) == names
