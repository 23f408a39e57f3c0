"""3D parallelism equals one process, on every mesh of up to 2 x 2 x 2, with every ZeRO stage."""

import itertools
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from course_lib.models import batches, tiny_gpt, train
from course_lib.models.tiny_gpt import token_loss
from course_lib.ranks import collect
from course_lib.simulate import Transformer, dgx_a100, plan
from course_lib.techniques.checkpoints.three_d_state import load_whole_state, whole_state
from course_lib.techniques.context_parallel import packed_documents
from course_lib.techniques.context_parallel.loss import IGNORED
from course_lib.techniques.mesh import Mesh
from course_lib.techniques.schedules import gpipe, interleaved, one_f_one_b, zb_h1
from course_lib.techniques.three_d import ThreeD, check

STEPS, BATCH = 6, 16


def model_of(tied: bool = False):
    return tiny_gpt(layers=3, hidden=16, heads=4, tied=tied, seed=0).double()


def adam(groups):
    return torch.optim.AdamW(groups, lr=1e-2)


def reference(tied: bool = False):
    torch.set_num_threads(1)
    model = model_of(tied)
    history = train(model, batches(STEPS, BATCH), adam)
    return history.losses, model.state_dict()


def trained(mesh, schedule, tied, options):
    """On each rank: for each set of options, the losses and this rank's parameters, whole."""
    results = []
    for option in options:
        model = model_of(tied)
        if mesh.coordinates(dist.get_rank())["data"]:  # replicas start unequal
            with torch.no_grad():
                model.head.norm.bias += 1
        training = ThreeD(model, mesh, schedule, adam, **option)
        losses = [training.train_step(*batch).item() for batch in batches(STEPS, BATCH)]
        results.append((losses, parameters_of(training)))
    return results


def parameters_of(training):
    state = whole_state(training)
    return {key[6:]: tensor for key, tensor in state.items() if key.startswith("model/")}


def assert_equal_to_one_process(mesh, schedule, options, tied=False):
    losses, parameters = reference(tied)
    ranks = collect(
        trained, mesh.world_size, (mesh, schedule, tied, options), observe=False, timeout=200
    )
    for number, option in enumerate(options):
        seen = set()
        for rank, results in enumerate(ranks):
            theirs, whole = results[number]
            assert theirs == pytest.approx(losses, abs=1e-9), (rank, option)
            for name, value in whole.items():
                torch.testing.assert_close(value, parameters[name], rtol=0, atol=1e-9)
            seen |= set(whole)
        missing = {} if not tied or mesh.pipeline > 1 else {"head.projection.weight"}
        assert seen == set(model_of(tied).state_dict()) - set(missing)


MESHES = [(1, 1, 1), (1, 2, 1), (1, 1, 2), (2, 1, 1), (1, 2, 2), (2, 2, 1), (2, 1, 2), (2, 2, 2)]


@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_every_mesh_and_zero_stage_equals_one_process(sizes):
    mesh = Mesh(**dict(zip(("pipeline", "data", "tensor"), sizes, strict=True)))
    stages = (0, 1, 2) if mesh.pipeline > 1 else (0, 1, 2, 3)
    assert_equal_to_one_process(mesh, one_f_one_b(mesh.pipeline, 2), [{"zero": z} for z in stages])


@pytest.mark.parametrize(
    ("sizes", "stages"),
    [
        ({"context": 2}, (0, 1, 2, 3)),
        ({"context": 3, "data": 2}, (2,)),
        ({"pipeline": 2, "context": 2, "tensor": 2}, (0, 1)),
    ],
    ids=str,
)
def test_sequences_cut_over_a_context_axis_change_nothing(sizes, stages):
    """Of 9 tokens, of which 5 count: parts of unequal size, and ranks with fewer targets."""
    mesh = Mesh(**sizes)
    assert_equal_to_one_process(mesh, one_f_one_b(mesh.pipeline, 2), [{"zero": z} for z in stages])


def test_a_context_axis_goes_with_recomputation_split_backward_passes_and_tied_weights():
    mesh = Mesh(pipeline=2, context=2)
    recompute, plain = {"recompute": True}, {"zero": 1}
    assert_equal_to_one_process(mesh, zb_h1(2, 4), [plain])
    assert_equal_to_one_process(mesh, gpipe(2, 4), [recompute], tied=True)


@pytest.mark.parametrize(
    ("schedule", "tied", "option"),
    [
        (gpipe(2, 4), False, {"zero": 1, "recompute": True}),
        (interleaved(2, 2, 2), False, {"zero": 2}),
        (zb_h1(2, 4), False, {"zero": 1}),
        (one_f_one_b(2, 2), True, {"zero": 0}),
        (one_f_one_b(2, 2), True, {"zero": 1}),
    ],
    ids=["gpipe-recompute", "interleaved-zero2", "zb-zero1", "tied", "tied-zero1"],
)
def test_schedules_recomputation_and_tied_weights_go_together(schedule, tied, option):
    assert_equal_to_one_process(Mesh(pipeline=2, data=2, tensor=1), schedule, [option], tied)


def test_the_order_of_the_axes_changes_nothing_but_the_coordinates():
    mesh = Mesh(pipeline=1, data=2, tensor=2, order=("tensor", "data", "pipeline"))
    assert_equal_to_one_process(mesh, one_f_one_b(1, 1), [{"zero": 1}])


LENGTHS = ([4, 5], [9], [2, 3, 3], [1, 7])  # of the documents of four rows, then again; of 9 tokens


def packed_batches():
    for tokens, targets in batches(STEPS // 2, BATCH):
        documents = torch.stack([packed_documents(LENGTHS[i % 4], 9) for i in range(BATCH)])
        yield tokens, targets.masked_fill(documents < 0, IGNORED), documents


def loss_of_documents_alone(model, tokens, targets):
    """The mean over all tokens, where each document is a sample of its own."""
    logits, of_them = [], []
    for row in range(len(tokens)):
        cuts = list(itertools.accumulate(LENGTHS[row % 4], initial=0))
        for start, end in itertools.pairwise(cuts):
            logits.append(model(tokens[row : row + 1, start:end])[0])
            of_them.append(targets[row, start:end])
    return token_loss(torch.cat(logits), torch.cat(of_them))


def trained_on_documents(mesh, schedule, options):
    training = ThreeD(model_of(), mesh, schedule, adam, **options)
    losses = [training.train_step(*batch).item() for batch in packed_batches()]
    return losses, parameters_of(training)


@pytest.mark.parametrize(
    ("mesh", "schedule", "options"),
    [
        (Mesh(pipeline=2, context=2), one_f_one_b(2, 4), {"recompute": True}),
        (Mesh(data=2, tensor=2), one_f_one_b(1, 2), {"zero": 2}),
    ],
    ids=str,
)
def test_packed_documents_are_trained_as_if_each_came_alone(mesh, schedule, options):
    model, losses = model_of(), []
    optimizer = adam(model.parameters())
    for tokens, targets, _ in packed_batches():
        pieces = zip(tokens.chunk(4), targets.chunk(4), strict=True)
        loss = torch.stack([loss_of_documents_alone(model, *piece) for piece in pieces]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    arguments = mesh, schedule, options
    results = collect(trained_on_documents, 4, arguments, observe=False, timeout=100)
    for theirs, parameters in results:
        assert theirs == pytest.approx(losses, abs=1e-9)
        for name, value in parameters.items():
            torch.testing.assert_close(value, model.state_dict()[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("context", [1, 2])
def test_a_mesh_that_the_planner_gives_trains(context):
    model = Transformer(layers=3, hidden=16, heads=4, seq=8, vocab=32)
    node = replace(dgx_a100, devices_per_node=4, nodes=1)
    allow = lambda m: min(m.pipeline, m.tensor) == 1 < m.data  # noqa: E731
    mesh = plan(model, node, BATCH, contexts=(context,), allow=allow).best.mesh
    assert (mesh.world_size, mesh.context) == (4, context)
    assert_equal_to_one_process(mesh, one_f_one_b(mesh.pipeline, 2), [{"zero": 1}])


@pytest.mark.parametrize(
    ("mesh", "schedule", "options", "says"),
    [
        (
            Mesh(pipeline=1, data=1, tensor=3),
            one_f_one_b(1, 1),
            {},
            "4 attention heads do not divide over 3",
        ),
        (
            Mesh(pipeline=2, data=1, tensor=1),
            one_f_one_b(3, 3),
            {},
            "for 3 ranks, the pipeline axis has 2",
        ),
        (
            Mesh(pipeline=6, data=1, tensor=1),
            one_f_one_b(6, 2),
            {},
            "5 layers cannot be cut into 6 stages",
        ),
        (Mesh(context=10), one_f_one_b(1, 1), {}, "9 tokens cannot be cut over 10 ranks"),
        (Mesh(pipeline=1, data=1, tensor=1), one_f_one_b(1, 1), {"zero": 4}, "not 4"),
        (Mesh(pipeline=2, data=1, tensor=1), one_f_one_b(2, 2), {"zero": 3}, "ZeRO-3 .* one stage"),
        (Mesh(pipeline=1, data=1, tensor=1), gpipe(1, 2), {"zero": 3}, "1F1B's order"),
        (Mesh(pipeline=2, data=1, tensor=1), zb_h1(2, 2), {"zero": 2}, "zero-bubble"),
        (
            Mesh(pipeline=1, data=1, tensor=1),
            one_f_one_b(1, 1),
            {"master_dtype": torch.float32},
            "zero=1",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_without_processes(mesh, schedule, options, says):
    with pytest.raises(ValueError, match=says):
        check(model_of(), mesh, schedule, **options)


def test_several_problems_are_told_at_once():
    with pytest.raises(ValueError, match=r"4 attention heads.*5 layers cannot be cut"):
        check(model_of(), Mesh(pipeline=6, data=1, tensor=3), one_f_one_b(6, 2))


def test_another_mesh_goes_on_from_the_state_of_this_one():
    """Steps on three meshes, one after the other, are those of one process."""

    def half(mesh, options, batches_of_half, state):
        training = ThreeD(model_of(), mesh, one_f_one_b(mesh.pipeline, 2), adam, **options)
        if state:
            load_whole_state(training, state)
        losses = [training.train_step(*batch).item() for batch in batches_of_half]
        return losses, whole_state(training)

    plans = [
        (Mesh(pipeline=2, data=1, tensor=2), {"zero": 0}),
        (Mesh(pipeline=1, data=3, tensor=1), {"zero": 3}),
        (Mesh(pipeline=2, context=2), {"zero": 2}),
    ]
    given = list(batches(STEPS, 48))
    model = model_of()
    history = train(model, given, adam)
    state: dict[str, torch.Tensor] = {}
    found = []
    for (mesh, options), some in zip(plans, (given[:2], given[2:4], given[4:]), strict=True):
        ranks = collect(
            half, mesh.world_size, (mesh, options, some, state), observe=False, timeout=200
        )
        found += ranks[0][0]
        state = {key: value for _, part in ranks for key, value in part.items()}
    assert found == pytest.approx(history.losses, abs=1e-9)
    for name, value in model.named_parameters():
        torch.testing.assert_close(state[f"model/{name}"], value.data, rtol=0, atol=1e-9)
        assert state[f"scalar/{name}/step"] == STEPS


def test_bfloat16_trains_with_master_weights_in_float32():
    def losses_and_precisions():
        model = tiny_gpt(layers=2, hidden=32, heads=4, seed=0).bfloat16()
        training = ThreeD(
            model,
            Mesh(pipeline=2, data=2, tensor=1),
            one_f_one_b(2, 2),
            adam,
            zero=1,
            recompute=True,
            master_dtype=torch.float32,
        )
        losses = [training.train_step(*batch).item() for batch in batches(40, 32)]
        used = {p.dtype for p in training.stages.parameters()}
        return losses, used, {tensor.dtype for tensor in whole_state(training).values()}

    for losses, used, saved in collect(losses_and_precisions, 4, observe=False, timeout=100):
        assert used == {torch.bfloat16}
        assert saved == {torch.float32}
        assert losses[-1] < losses[0] / 1.3
