"""A layer shared by t ranks is the layer of one process: outputs and every gradient, float64."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from course_lib.models import TinyGPT, batches, solved_share, tiny_gpt, train
from course_lib.models.tiny_gpt import MLP, Attention, Block
from course_lib.ranks import collect
from course_lib.techniques.tensor_parallel import (
    ColumnParallelLinear,
    ParallelAttention,
    ParallelBlock,
    ParallelMLP,
    RowParallelLinear,
    TensorParallelGPT,
    VocabParallelEmbedding,
    gather_whole,
    load_whole,
    shares_of,
    sum_replicated_gradients,
    vocab_parallel_cross_entropy,
)
from course_lib.techniques.tensor_parallel.axis import TensorAxis
from course_lib.techniques.tensor_parallel.overlap import ColumnLinears, plain_column_linears
from course_lib.techniques.tensor_parallel.vocabulary import IGNORED

BATCH, TOKENS, WIDTH, HEADS, VOCAB = 2, 12, 24, 12, 13
SIZES = (1, 2, 3, 4)
EXACT = 1e-10


def signal(*shape, seed=2):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(kind, *args, **options):
    """The same module on every rank, with biases: zeros would hide one that is added t times."""
    torch.manual_seed(1)
    module = kind(*args, **options).double()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    return module


def through(module, x, weights, residual):
    """Output and gradient of x, where the loss weighs each element of the output differently."""
    x = x.clone().requires_grad_()
    y = module(x)
    if residual:
        y = x + y  # both summands are handed the same gradient tensor
    (y * weights).sum().backward()
    return y.detach(), x.grad


def apart(whole, parallel, *, part=lambda x: x, out=lambda y: y, residual=True, sequence=False):
    """By how much output and gradients differ from those of `whole`: {name: largest difference}.

    part, out: what this rank has of the input and of the output.
    """
    load_whole(parallel, whole.state_dict())
    whole.zero_grad()
    x = signal(BATCH, TOKENS, WIDTH)
    with torch.no_grad():
        weights = signal(*whole(x).shape, seed=3)
    y, dx = through(whole, x, weights, residual)
    own_y, own_dx = through(parallel, part(x), out(weights), residual)
    if sequence:
        sum_replicated_gradients(parallel)
    shares = shares_of(parallel)
    pairs = {"output": (own_y, out(y)), "input": (own_dx, part(dx))}
    for name, parameter in whole.named_parameters():
        wanted = shares[name].of(parameter.grad) if name in shares else parameter.grad
        pairs[name] = parallel.get_parameter(name).grad, wanted
    return {name: (a - b).abs().max().item() for name, (a, b) in pairs.items()}


def my_part(dim):
    return lambda x: x.chunk(dist.get_world_size(), dim)[dist.get_rank()]


def layers():
    linear = made(nn.Linear, WIDTH, WIDTH)
    mlp, block = made(MLP, WIDTH), made(Block, WIDTH, HEADS)
    attention = made(Attention, WIDTH, HEADS)
    tokens = {"part": my_part(1), "out": my_part(1), "sequence": True}

    def double(kind, *args, **options):
        return kind(*args, **options).double()

    found = {
        "columns": apart(
            linear, double(ColumnParallelLinear, WIDTH, WIDTH), out=my_part(-1), residual=False
        ),
        "columns, gathered": apart(
            linear, double(ColumnParallelLinear, WIDTH, WIDTH, gather_output=True)
        ),
        "rows": apart(
            linear, double(RowParallelLinear, WIDTH, WIDTH), part=my_part(-1), residual=False
        ),
        "mlp": apart(mlp, double(ParallelMLP, WIDTH)),
        "attention": apart(attention, double(ParallelAttention, WIDTH, HEADS)),
        "block": apart(block, double(ParallelBlock, WIDTH, HEADS)),
    }
    for whole, kind, args in (
        (mlp, ParallelMLP, (WIDTH,)),
        (attention, ParallelAttention, (WIDTH, HEADS)),
        (block, ParallelBlock, (WIDTH, HEADS)),
    ):
        parallel = double(kind, *args, sequence_parallel=True)
        found[f"{kind.__name__}, sequence parallel"] = apart(whole, parallel, **tokens)
    return found


@pytest.mark.parametrize("size", SIZES)
def test_every_layer_is_that_of_one_process(size):
    for found in collect(layers, size, timeout=60):
        assert len(found) == 9
        for layer, differences in found.items():
            assert max(differences.values()) < EXACT, (layer, differences)


# ------------------------------------------------------------------------------------------------


class GroupedAttention(nn.Module):
    """K key/value heads, each written out for every query head that uses it."""

    def __init__(self, hidden, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        kv_width = hidden // heads * kv_heads
        self.query, self.out = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.key, self.value = nn.Linear(hidden, kv_width), nn.Linear(hidden, kv_width)

    def forward(self, x):
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (
            y.unflatten(-1, (self.kv_heads, -1))
            .repeat_interleave(self.heads // self.kv_heads, dim=2)
            .transpose(1, 2)
            for y in (self.key(x), self.value(x))
        )
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(-2))


def grouped(kv_heads):
    whole = made(GroupedAttention, WIDTH, HEADS, kv_heads)
    plain = ParallelAttention(WIDTH, HEADS, kv_heads=kv_heads).double()
    split = ParallelAttention(WIDTH, HEADS, kv_heads=kv_heads, sequence_parallel=True).double()
    sequence = apart(whole, split, part=my_part(1), out=my_part(1), sequence=True)
    return apart(whole, plain), sequence, gather_whole(plain), whole.state_dict()


@pytest.mark.parametrize(
    ("size", "kv_heads"), [(1, 3), (2, 1), (2, 4), (3, 1), (3, 3), (4, 1), (4, 2), (4, 4), (4, 12)]
)
def test_fewer_key_value_heads_than_ranks(size, kv_heads):
    for plain, sequence, gathered, whole in collect(grouped, size, (kv_heads,), timeout=60):
        assert max(plain.values()) < EXACT, plain
        assert max(sequence.values()) < EXACT, sequence
        assert all(torch.equal(gathered[name], whole[name]) for name in whole)


# ------------------------------------------------------------------------------------------------


def embedding_and_loss():
    """The largest differences, with uneven parts of the vocabulary and with ignored targets."""
    symbols = torch.randint(VOCAB, (BATCH, TOKENS), generator=torch.Generator().manual_seed(4))
    symbols[0, 0], symbols[1, 1] = 0, VOCAB - 1
    whole = made(nn.Embedding, VOCAB, WIDTH)
    parallel = VocabParallelEmbedding(VOCAB, WIDTH).double()
    load_whole(parallel, whole.state_dict())
    share = parallel.shares["weight"]
    weights = signal(BATCH, TOKENS, WIDTH, seed=3)
    (whole(symbols) * weights).sum().backward()
    (parallel(symbols) * weights).sum().backward()
    found = [parallel(symbols) - whole(symbols), parallel.weight.grad - share.of(whole.weight.grad)]

    targets = symbols.clone()
    targets[:, 3] = IGNORED
    logits = (30 * signal(BATCH, TOKENS, VOCAB) + 1000).requires_grad_()  # exp() alone overflows
    mine = logits.detach()[..., share.start : share.stop].clone().requires_grad_()
    wanted = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
    ).view_as(targets)
    losses = vocab_parallel_cross_entropy(mine, targets, VOCAB)
    (wanted * weights[..., 0]).sum().backward()
    (losses * weights[..., 0]).sum().backward()
    found += [losses - wanted, mine.grad - logits.grad[..., share.start : share.stop]]
    return [difference.abs().max().item() for difference in found]


@pytest.mark.parametrize("size", SIZES)
def test_vocabulary_in_parts(size):
    for found in collect(embedding_and_loss, size, timeout=60):
        assert max(found) < EXACT, found


# ------------------------------------------------------------------------------------------------


def gpt_data(steps):
    generator = torch.Generator().manual_seed(5)
    for _ in range(steps):
        tokens, targets = torch.randint(VOCAB, (2, BATCH, TOKENS), generator=generator)
        yield (
            tokens,
            targets.masked_fill(torch.rand(BATCH, TOKENS, generator=generator) < 0.2, -100),
        )


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.3, momentum=0.9)


def whole_gpt(tied):
    return made(TinyGPT, VOCAB, TOKENS, layers=2, hidden=WIDTH, heads=HEADS, tied=tied)


def train_gpt(tied, sequence):
    model = TensorParallelGPT.from_model(whole_gpt(tied), sequence_parallel=sequence)
    optimizer = momentum(model.parameters())
    losses, states = [], []
    for tokens, targets in gpt_data(3):
        optimizer.zero_grad()
        loss = model.loss(tokens, targets)
        loss.backward()
        if sequence:
            sum_replicated_gradients(model)
        optimizer.step()
        losses.append(loss.item())
        states.append(gather_whole(model))
    tokens, _ = next(gpt_data(1))
    return losses, states, model.whole_logits(tokens)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("tied", "sequence"), [(False, False), (True, False), (True, True)])
def test_a_trained_gpt_is_that_of_one_process(size, tied, sequence):
    whole = whole_gpt(tied)
    history = train(whole, gpt_data(3), momentum)
    logits = whole(next(gpt_data(1))[0])
    for losses, states, found in collect(train_gpt, size, (tied, sequence), timeout=60):
        assert losses == pytest.approx(history.losses, abs=EXACT, rel=0)
        for state, wanted in zip(states, history.parameters, strict=True):
            assert set(state) == set(whole.state_dict())
            for name, parameter in wanted.items():
                assert (state[name] - parameter).abs().max() < EXACT, name
        assert (found - logits).abs().max() < EXACT
        if tied:
            last = states[-1]
            assert torch.equal(last["head.projection.weight"], last["embedding.tokens.weight"])


def as_layers():
    """The parts one after the other, as a pipeline would cut them, and a copy of the model."""
    model = TensorParallelGPT.from_model(whole_gpt(tied=False))
    chain = nn.Sequential(model.embedding, *model.blocks, model.head)
    tokens, targets = next(gpt_data(1))
    direct = model.loss(tokens, targets)
    copied = copy.deepcopy(model)
    return [
        x.item()
        for x in (direct, model.token_loss(chain(tokens), targets), copied.loss(tokens, targets))
    ]


def test_its_parts_can_be_cut_and_copied():
    for direct, chained, copied in collect(as_layers, 2):
        assert direct == chained == copied


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3)


def learn_to_sort():
    model = TensorParallelGPT.from_model(tiny_gpt(hidden=16, tied=True, seed=0).double())
    optimizer = adam(model.parameters())
    losses = []
    for tokens, targets in batches(12, 8):
        optimizer.zero_grad()
        loss = model.loss(tokens, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, solved_share(model.whole_logits, count=8)


@pytest.mark.parametrize("size", [2, 4])
def test_the_tiny_gpt_learns_as_in_one_process(size):
    whole = tiny_gpt(hidden=16, tied=True, seed=0).double()
    history = train(whole, batches(12, 8), adam)
    assert history.losses[-1] < history.losses[0] - 0.01
    for losses, solved in collect(learn_to_sort, size, timeout=60):
        assert losses == pytest.approx(history.losses, rel=1e-6)
        assert solved == solved_share(whole, count=8)


# ------------------------------------------------------------------------------------------------


def overlapped_against_plain(sequence):
    """(results, gradients) of both ways, with a frozen weight and without a bias among them."""
    axis = TensorAxis.of(None)
    found = []
    for linears in (plain_column_linears, None):
        x = signal(BATCH, TOKENS, WIDTH)
        x = (my_part(1)(x).clone() if sequence else x).requires_grad_()
        weights = [
            signal(n, WIDTH, seed=n + 10 * axis.rank).requires_grad_(n != 5) for n in (4, 5, 6)
        ]
        biases = [signal(4, seed=9).requires_grad_(), None, signal(6, seed=8)]
        if linears:
            ys = linears(axis, sequence, x, weights, biases)
        else:
            ys = ColumnLinears.apply(axis, sequence, x, *weights, *biases)
        sum(y.square().sum() for y in ys).backward()
        found.append([*ys, x.grad, *(t.grad for t in weights + biases if t is not None)])
    return found


@pytest.mark.parametrize("sequence", [False, True])
def test_the_overlapped_way_computes_what_f_and_linear_compute(sequence):
    for plain, overlapped in collect(overlapped_against_plain, 3, (sequence,)):
        for a, b in zip(plain, overlapped, strict=True):
            assert (a is None) == (b is None)
            assert a is None or (a - b).abs().max() < EXACT
        assert sum(gradient is None for gradient in plain) == 2  # the frozen weight, the last bias


def reduced_in_place():
    """What f must not do: reduce the tensor that it is handed."""

    class InPlace(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            dist.all_reduce(gradient)
            return gradient

    class Layer(nn.Module):
        def forward(self, x):
            return InPlace.apply(x)

    class Whole(nn.Module):
        def forward(self, x):
            return 2 * x

    x, weights = signal(2, 2), torch.ones(2, 2)
    (_, wanted), (_, found) = (through(m, x, weights, True) for m in (Whole(), Layer()))
    return (wanted - found).abs().max().item()


def test_negative_control_a_residual_branch_shows_a_reduction_in_place():
    assert max(collect(reduced_in_place, 2)) > 0.5
