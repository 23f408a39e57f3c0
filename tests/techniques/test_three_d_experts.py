"""Experts on a mesh with all its axes: one process, and the state of any other mesh."""

import pytest
import torch
from torch import nn

from course_lib.models import batches, tiny_gpt, tiny_mixture_gpt, train
from course_lib.ranks import collect
from course_lib.techniques.checkpoints import resumable
from course_lib.techniques.checkpoints.three_d_state import whole_state
from course_lib.techniques.expert_parallel import mixtures_of
from course_lib.techniques.expert_parallel.gpt import active_part
from course_lib.techniques.mesh import Mesh
from course_lib.techniques.pipeline.partition import layer_costs
from course_lib.techniques.schedules import one_f_one_b, zb_h1
from course_lib.techniques.three_d import ThreeD, check
from course_lib.techniques.three_d.stages import layers_of, split_stages

STEPS, BATCH, MICROBATCHES = 3, 16, 2
EXACT = 1e-9


def model_of(**options):
    mixture = {"experts": 4, "shared": 8, "balance": 0.02, "gate": "sigmoid"} | options
    model = tiny_mixture_gpt(layers=2, hidden=16, heads=4, seed=0, **mixture).double()
    for number, block in enumerate(model.blocks):  # a bias that a checkpoint has to carry
        block.mlp.router.bias[number] = 0.01
    return model


def adam(groups):
    return torch.optim.AdamW(groups, lr=1e-2)


def loss_of(mesh):
    """The mean over microbatches: tokens that are balanced together are those of one."""

    def loss(model, *batch):
        parts = [tensor.chunk(mesh.data) for tensor in batch]
        cut = [[part.chunk(MICROBATCHES) for part in replicas] for replicas in parts]
        micro = [
            [torch.cat([replica[m] for replica in tensor]) for tensor in cut]
            for m in range(MICROBATCHES)
        ]
        return torch.stack([model.loss(*both) for both in micro]).mean()

    return loss


def reference(mesh):
    torch.set_num_threads(1)
    model = model_of()
    train(model, batches(STEPS, BATCH), adam, loss_of(mesh))
    return model.state_dict()


def trained(mesh, schedules, options):
    """For each set of options the whole state of this rank's stages, at the end."""
    found = []
    for make, option in zip(schedules, options, strict=True):
        training = ThreeD(model_of(), mesh, make(mesh.pipeline, MICROBATCHES), adam, **option)
        for batch in batches(STEPS, BATCH):
            training.train_step(*batch)
        found.append(whole_state(training))
    return found


CASES = [
    (Mesh(data=2, expert=2, tensor=2), [one_f_one_b] * 3, [{"zero": zero} for zero in (0, 1, 2)]),
    (
        Mesh(pipeline=2, data=2, expert=2),
        [one_f_one_b, one_f_one_b, zb_h1],
        [{"zero": 0, "recompute": True}, {"zero": 2}, {"zero": 1}],
    ),
    (Mesh(data=4, expert=2), [one_f_one_b, one_f_one_b], [{"zero": 0}, {"zero": 1}]),
    (Mesh(data=2, context=3, expert=2), [one_f_one_b] * 2, [{"zero": 0}, {"zero": 2}]),
]


@pytest.mark.parametrize(("mesh", "schedules", "options"), CASES, ids=[str(c[0]) for c in CASES])
def test_experts_compose_with_every_axis(mesh, schedules, options):
    wanted = reference(mesh)
    arguments = (mesh, schedules, options)
    ranks = collect(trained, mesh.world_size, arguments, observe=False, timeout=100)
    for number, option in enumerate(options):
        whole = {key: value for found in ranks for key, value in found[number].items()}
        assert {key[6:] for key in whole if key.startswith("model/")} == set(wanted)
        for found in ranks:
            for key, value in found[number].items():
                torch.testing.assert_close(value, whole[key], rtol=0, atol=EXACT)
        for name, value in wanted.items():
            torch.testing.assert_close(
                whole[f"model/{name}"],
                value,
                rtol=0,
                atol=EXACT,
                msg=lambda m, o=option: f"{o} {m}",
            )


def test_stages_are_cut_by_what_a_token_costs():
    layers = [layers_of(model_of(experts=experts)) for experts in (4, 64)]
    example = torch.zeros(1, 8, dtype=torch.long)
    few, many = (layer_costs(nn.Sequential(*map(active_part, each)), example) for each in layers)
    assert few == many
    dense = layer_costs(layers_of(model_of(experts=2, top_k=2)), example)
    assert dense == few
    stages = split_stages(model_of(experts=64), one_f_one_b(2, 2))
    assert [len(stage) for stage in stages] == [2, 2]


def bfloat16_losses():
    model = tiny_mixture_gpt(layers=1, hidden=32, experts=4, shared=32, seed=0).bfloat16()
    mesh = Mesh(data=2, expert=2)
    options = {"zero": 1, "master_dtype": torch.float32}
    training = ThreeD(model, mesh, one_f_one_b(1, 1), adam, **options)
    losses = [training.train_step(*batch).item() for batch in batches(30, 32)]
    used = {parameter.dtype for parameter in training.stages.parameters()}
    biases = {mixture.router.bias.dtype for mixture in mixtures_of(training.stages)}
    return losses, used, biases


def test_bfloat16_trains_with_biases_in_float32():
    for losses, used, biases in collect(bfloat16_losses, 2, observe=False, timeout=60):
        assert used == {torch.bfloat16}
        assert biases == {torch.float32}
        assert losses[-1] < losses[0] / 1.2


def test_a_checkpoint_is_resumed_on_any_other_mesh(tmp_path):
    """Three meshes train two steps each, one after the other, as one process does all six."""

    def saved(mesh, options, some, step):
        training = ThreeD(model_of(), mesh, one_f_one_b(1, 1), adam, **options)
        done = resumable.resume(training, tmp_path)
        for batch in some:
            training.train_step(*batch)
        resumable.save(training, tmp_path, step)
        return done, whole_state(training)

    given = list(batches(6, BATCH))
    model = model_of()
    history = train(model, given, adam)
    plans = [
        (Mesh(data=2, expert=2), {"zero": 2}),
        (Mesh(tensor=2), {"zero": 0}),
        (Mesh(data=4, expert=4), {"zero": 1}),
    ]
    for number, (mesh, options) in enumerate(plans):
        some = given[2 * number :][:2]
        ranks = collect(saved, mesh.world_size, (mesh, options, some, 2 * number + 2), timeout=60)
        assert {done for done, _ in ranks} == {2 * number}
    for _, state in ranks:
        for name, value in history.parameters[-1].items():
            torch.testing.assert_close(state[f"model/{name}"], value, rtol=0, atol=EXACT)
        for number in range(2):
            bias = state[f"model/blocks.{number}.mlp.router.bias"]
            assert bias.tolist() == [0.01 * (expert == number) for expert in range(4)]
            assert state[f"scalar/blocks.{number}.mlp.experts.up/step"] == 6


@pytest.mark.parametrize(
    ("options", "mesh", "zero", "says"),
    [
        ({"experts": 6}, Mesh(data=4, expert=4), 0, "6 experts do not divide over the 4 ranks"),
        ({"inner": 9}, Mesh(tensor=2), 0, "experts 9 wide do not divide over 2 ranks"),
        ({"top_k": 5}, Mesh(), 0, "choose 5 of 4 experts"),
        ({}, Mesh(data=2, expert=2), 3, "experts have another: take zero=2"),
    ],
)
def test_what_does_not_go_together_is_refused(options, mesh, zero, says):
    with pytest.raises(ValueError, match=says):
        check(model_of(**options), mesh, one_f_one_b(1, 1), zero)


def test_a_model_without_experts_cannot_share_them():
    with pytest.raises(ValueError, match="2 ranks are to share the experts of a model that has no"):
        check(tiny_gpt(), Mesh(data=2, expert=2), one_f_one_b(1, 1))
