"""The planner finds what was published to work, says why the rest does not, and adds up."""

import itertools
import re
import time
from dataclasses import fields, replace

import pytest

from course_lib.simulate import (
    DEEPSPEED_2021,
    MEGATRON_2021,
    MEGATRON_BF16,
    MEGATRON_FP16,
    MODELS,
    MODERN,
    Mesh,
    activation_bytes,
    dgx_a100,
    dgx_h100,
    plan,
    simulate,
    v100_32gb,
)
from course_lib.simulate.hardware import A100_80GB
from course_lib.simulate.plan_memory import footprint, in_flight, saved_by_stage
from course_lib.simulate.plan_stages import Held, stage_layers, stage_parameters
from course_lib.simulate.plan_time import StageTimes, StepTime
from course_lib.simulate.plans import Refused
from course_lib.techniques.schedules import interleaved, one_f_one_b

GB = 10**9
GPT_3, MT_NLG = MODELS["GPT-3 175B"], MODELS["MT-NLG 530B"]
SMALL, LLAMA_3 = MODELS["1.7B"], MODELS["Llama 3 405B"]


# ------------------------------------------------------------------------------------------------
# What is tried
# ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned():
    return plan(GPT_3, dgx_a100.with_nodes(128), 1536)


def test_every_mesh_of_the_cluster_is_ranked_or_refused_once(planned):
    refused = [refusal.mesh for refusal in planned.refused]
    everything = {
        Mesh(data=1024 // (t * p), tensor=t, pipeline=p)
        for t in range(1, 1025)
        for p in range(1, 1025)
        if 1024 % (t * p) == 0
    }
    assert {*planned.meshes, *refused} == everything
    assert len(planned.meshes) + len(refused) == len(everything)


def test_plans_fit_use_the_whole_batch_and_come_in_order_of_time(planned):
    assert all(p.memory.total <= A100_80GB.memory for p in planned.ranked)
    assert all(p.global_batch == 1536 for p in planned.ranked)
    times = [p.step.total for p in planned.ranked]
    assert times == sorted(times)
    assert planned.best is planned.ranked[0]


def test_schedules_stages_and_recomputation_are_all_tried(planned):
    tried = {(p.chunks > 1, p.zero, p.recompute) for p in planned.ranked}
    assert {kind for kind, _, _ in tried} == {False, True}
    assert {zero for _, zero, _ in tried} == {0, 1, 2, 3}
    assert {way for _, _, way in tried} == {"none", "full"}
    with_pipeline = [p for p in planned.ranked if p.chunks > 1]
    assert all(p.microbatches % p.mesh.pipeline == 0 for p in with_pipeline)
    assert all(p.mesh.pipeline > 1 for p in with_pipeline)


def test_each_refusal_names_its_numbers(planned):
    why = {refusal.mesh: refusal.why for refusal in planned.refused}
    assert (
        why[Mesh(data=16, tensor=64, pipeline=1)] == "96 heads cannot be split evenly over 64 ranks"
    )
    assert (
        why[Mesh(data=2, tensor=8, pipeline=64)]
        == "96 layers cannot be split evenly over 64 stages"
    )
    assert (
        why[Mesh(data=1024, tensor=1, pipeline=1)]
        == "1536 sequences cannot be split evenly over 1024 replicas"
    )
    with pytest.raises(ValueError, match="96 heads cannot be split evenly over 64"):
        planned.of(Mesh(data=16, tensor=64, pipeline=1))
    with pytest.raises(ValueError, match="16 devices; DGX A100 has 1024"):
        planned.of(Mesh(data=2, tensor=2, pipeline=4))


def test_what_does_not_fit_says_what_it_would_need():
    ours = plan(GPT_3, dgx_a100.with_nodes(8), 512, zero=(0,), allow=lambda m: m.tensor == 8)
    (why,) = [r.why for r in ours.refused if r.mesh == Mesh(data=8, tensor=8, pipeline=1)]
    assert why.startswith("needs 397.9 GB of 80 (states 392.9, activations 5.0) even with ZeRO 0")


def test_the_table_has_a_row_a_mesh_and_reasons_below(planned):
    text = planned.text(rows=3, refusals=2)
    head, _, columns, *rows = text.splitlines()
    assert head.startswith("174.6B parameters, 1536 sequences of 2048 per step, on 1024 x A100")
    assert columns.split()[:3] == ["pipeline", "data", "tensor"]
    meshes = [
        Mesh(**dict(zip(("pipeline", "data", "tensor"), map(int, row.split()[:3]), strict=True)))
        for row in rows[:3]
    ]
    assert meshes == list(planned.meshes[:3])
    assert all(len(row) == len(columns) for row in rows[:3])
    reasons = rows[rows.index("not possible:") + 1 :]
    assert len(reasons) == 5  # of two kinds, a mesh and the reason; how many meshes have others
    counts = [int(count) for count in re.findall(r"(\d+) more", "\n".join(reasons))]
    assert 2 + sum(counts) == len(planned.refused)
    assert str(planned) == repr(planned) == planned.text()


# ------------------------------------------------------------------------------------------------
# Its parts
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [
        (8, 2, [4, 4]),
        (126, 16, [7, *[8] * 14, 7]),  # Llama 3, section 3.3.2
        (6, 4, [1, 2, 2, 1]),
        (7, 1, [7]),
        (2, 2, [1, 1]),
        (7, 2, None),
        (2, 4, None),  # else the ends would have no layer at all
    ],
)
def test_layers_of_stages(layers, stages, expected):
    assert stage_layers(layers, stages) == expected
    if expected:
        assert sum(expected) == layers


def test_stages_have_all_parameters_and_the_last_a_copy_of_the_embedding():
    held = stage_parameters(GPT_3, [24] * 4, Mesh(tensor=8, pipeline=4))
    assert sum(each.dense for each in held) * 8 == GPT_3.parameters + GPT_3.vocab * GPT_3.hidden
    assert stage_parameters(GPT_3, [96], Mesh()) == [Held(GPT_3.parameters, 0)]


@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.parametrize("v", [1, 2, 3])
def test_in_flight_is_what_the_schedule_holds(p, v):
    m = 4 * p
    table = one_f_one_b(p, m) if v == 1 else interleaved(p, m, v)
    held = simulate(table).peak_held_by_rank(activation=1 / v)
    assert [in_flight(s, p, v, m) for s in range(p)] == pytest.approx(held)


def test_the_bubble_is_that_of_the_simulated_schedule():
    model = replace(SMALL, vocab=1)  # hardly any output layer, so that stages are equal
    p, m = 4, 8
    for chunks, table in ((1, one_f_one_b(p, m)), (3, interleaved(p, m, 3))):
        one = dgx_a100.with_links(between="InfiniBand NDR")
        mesh = Mesh(data=1, tensor=1, pipeline=p)
        stages = StageTimes(model, one, MEGATRON_2021, mesh, [6] * p, Held(1e9), 1, "none")
        step = stages.step(m, chunks, 0, MEGATRON_FP16)
        played = simulate(table)
        assert step.bubble / (step.compute + step.bubble) == pytest.approx(
            played.bubble_fraction, rel=1e-3
        )


def test_the_search_adds_up_what_a_step_has():
    cluster = dgx_a100.with_nodes(16)
    mesh = Mesh(tensor=2, pipeline=4, data=16)
    times = StageTimes(SMALL, cluster, MODERN, mesh, [6] * 4, Held(1e9), 2, "selective")
    for chunks, zero in itertools.product((1, 3), (0, 1, 2, 3)):
        parts = times.stages_seconds(8, chunks), times.zero_seconds(8, zero, MEGATRON_BF16)
        step = times.step(8, chunks, zero, MEGATRON_BF16)
        assert sum(parts) == pytest.approx(step.total, rel=1e-12)


def test_without_a_pipeline_nobody_waits():
    """Rounding aside: a bubble of -1e-17 would be printed as -0 %."""
    mixtral = MODELS["Mixtral 8x7B"]
    for nodes in (1, 4, 32):
        found = plan(mixtral, dgx_a100.with_nodes(nodes), 256)
        waits = [each.step.bubble for each in found.ranked if each.mesh.pipeline == 1]
        assert all(0 <= seconds < 1e-9 for seconds in waits)
        assert "-0%" not in found.text(1000)


def test_saved_activations_are_korthikantis():
    plain = replace(MEGATRON_2021, sequence_parallel=True)
    p, t, m = 35, 8, 280
    for chunks in (1, 3):
        ours = saved_by_stage(
            MT_NLG, plain, Mesh(data=1, tensor=t, pipeline=p), [3] * p, 1, m, chunks, "selective"
        )
        theirs = activation_bytes(MT_NLG, 1, t, p, chunks, m, True, "selective")
        assert ours[0] == pytest.approx(theirs)


def test_full_recomputation_needs_room_for_one_layer_at_work():
    mesh = Mesh(data=1, tensor=1, pipeline=1)
    args = (SMALL, MEGATRON_2021, mesh, [24], 1, 4, 1)
    logits = 4 * 2048 * (SMALL.hidden + SMALL.vocab)
    whole = activation_bytes(SMALL, 1)
    inputs = activation_bytes(SMALL, 1, recompute="full")
    assert saved_by_stage(*args, "none") == {0: whole + logits}
    assert saved_by_stage(*args, "full") == {0: pytest.approx(inputs + whole / 24 + logits)}


@pytest.mark.parametrize(("zero", "each"), [(0, 18), (1, 6 + 12 / 8), (2, 2 + 16 / 8), (3, 18 / 8)])
def test_states_are_sharded_over_the_data_parallel_ranks(zero, each):
    held = footprint(Held(1000), Mesh(data=8, tensor=2), zero, MEGATRON_BF16, gathered=0)
    assert held.total == held.states == pytest.approx(1000 * each)
    alone = footprint(Held(1000), Mesh(tensor=2), zero, MEGATRON_BF16, gathered=100)
    assert alone.total == 18000  # nobody to share with, nothing to gather


def test_gathered_layers_come_on_top_at_stage_3():
    held = footprint(Held(1000), Mesh(data=8, tensor=1, pipeline=1), 3, MEGATRON_BF16, gathered=100)
    assert held.parameters == 2 * 1000 / 8 + 2 * 2 * 100
    assert held.gradients == 4 * 1000 / 8 + 2 * 4 * 100
    assert held.with_activations(7).total == held.states + 7


def test_the_parts_of_a_step_add_up_and_compute_is_what_the_device_can_do():
    found = plan(SMALL, dgx_a100, 64, MEGATRON_2021, MEGATRON_FP16).of(Mesh(data=8))
    parts = [getattr(found.step, field.name) for field in fields(StepTime)]
    assert sum(parts) == found.step.total
    assert found.step.bubble == found.step.tensor == found.step.pipeline == 0
    assert found.flops_per_second < MEGATRON_2021.matrix * A100_80GB.matmul_flops
    no_passes = replace(MEGATRON_2021, passes=0)
    ideal = plan(SMALL, dgx_a100, 64, no_passes, MEGATRON_FP16, recompute=("none",)).best
    work = SMALL.flops(64) / 8 / (MEGATRON_2021.matrix * A100_80GB.matmul_flops)
    assert ideal.step.compute == pytest.approx(work)


def test_a_fused_attention_has_a_rate_of_its_own():
    device = replace(A100_80GB, attention_share=1e-3)
    slow, fast = (MODERN.layer_seconds(SMALL, each, 1, 1, "none") for each in (device, A100_80GB))
    scores = 4 * SMALL.seq**2 * SMALL.hidden
    less = scores / device.attention_flops - scores / A100_80GB.attention_flops
    assert slow - fast == pytest.approx(3 * less)
    plain = [MEGATRON_2021.layer_seconds(SMALL, each, 1, 1, "none") for each in (device, A100_80GB)]
    assert plain[0] == plain[1]


def test_an_early_stop_saves_the_last_product_and_its_reduction():
    once = replace(MODERN, stops_early=False)
    saved = once.layer_seconds(SMALL, A100_80GB, 1, 1, "full") - MODERN.layer_seconds(
        SMALL, A100_80GB, 1, 1, "full"
    )
    last = 2 * SMALL.seq * SMALL.hidden * 4 * SMALL.hidden
    assert saved == pytest.approx(last / (MODERN.matrix * A100_80GB.matmul_flops))
    assert (once.reduces("full"), MODERN.reduces("full"), MODERN.reduces("none")) == (6, 5, 4)


# ------------------------------------------------------------------------------------------------
# Requests that are large, or impossible
# ------------------------------------------------------------------------------------------------


def test_sixteen_thousand_devices_are_planned_in_less_than_two_seconds():
    began = time.thread_time()
    found = plan(LLAMA_3, dgx_h100.with_nodes(2048), 2048)
    assert time.thread_time() - began < 2
    assert found.best.mesh.world_size == 16384


def test_an_impossible_request_says_what_would_make_it_possible():
    found = plan(GPT_3, dgx_a100, 64)
    assert not found.ranked
    with pytest.raises(ValueError, match="no plan fits") as caught:
        _ = found.best
    said = str(caught.value)
    assert "397.9 GB on a device of 80" in said
    nodes = int(re.search(r"(\d+) nodes, \d+ devices, would do", said).group(1))
    assert plan(GPT_3, dgx_a100.with_nodes(nodes), 64).ranked
    assert not plan(GPT_3, dgx_a100.with_nodes(nodes // 2), 64).ranked


def test_devices_with_more_memory_are_named():
    # 1.65 x 10^9 parameters of 20 bytes
    alone = plan(SMALL, replace(v100_32gb, devices_per_node=1), 1, states=MEGATRON_FP16)
    assert alone.refused[0].need == pytest.approx(34 * GB, rel=0.02)
    assert "A100 SXM 40 GB would do." in alone.remedies


def test_a_batch_that_does_not_divide_is_told_the_nearest_that_does():
    found = plan(SMALL, dgx_a100.with_nodes(4), 100, allow=lambda m: m.data == 32)
    assert not found.ranked
    assert found.remedies[-1] == ("A batch of 96 sequences divides over 32 replicas, 100 does not.")


def test_less_sharding_than_there_is_is_told():
    found = plan(GPT_3, dgx_a100.with_nodes(2), 64, zero=(0,), recompute=("none",))
    assert "Allow ZeRO 3 and full recomputation, which take the least memory." in found.remedies


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: plan(SMALL, dgx_a100, 0), "global_batch = 0"),
        (lambda: plan(SMALL, dgx_a100, 8, zero=(4,)), r"zero = \(4,\)"),
        (lambda: plan(SMALL, dgx_a100, 8, zero=()), r"zero = \(\)"),
        (lambda: plan(SMALL, dgx_a100, 8, recompute=("selective",)), "none, full, not 'selective'"),
        (lambda: plan(SMALL, dgx_a100, 8, allow=lambda m: False), "no mesh of 8 devices"),
        (lambda: Mesh(data=1, tensor=0, pipeline=1), "tensor = 0"),
        (lambda: replace(MODERN, matrix=1.2), "matrix = 1.2"),
        (lambda: replace(MODERN, passes=-1), "passes = -1"),
        (lambda: replace(MODERN, sends=0), "sends = 0"),
        (lambda: replace(MODERN, interleaves_from=0), "interleaves_from = 0"),
    ],
)
def test_numbers_that_make_no_sense_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_software_of_today_has_nothing_left_to_recompute_selectively():
    assert MODERN.recomputations == ("none", "full")
    assert MEGATRON_2021.recomputations == ("none", "selective", "full")
    assert isinstance(plan(SMALL, dgx_a100, 7).refused[0], Refused)


def test_what_travels_in_smaller_messages_needs_less_room():
    found = [
        plan(
            GPT_3,
            dgx_a100.with_nodes(96),
            1536,
            replace(DEEPSPEED_2021, messages=messages),
            MEGATRON_FP16,
            zero=(3,),
            recompute=("full",),
            allow=lambda mesh: mesh.data == 768,
            micro_batch=1,
        ).best.memory.states
        for messages in (1, 4)
    ]
    layer = 12 * GPT_3.hidden**2 + 13 * GPT_3.hidden
    assert found[0] - found[1] == pytest.approx(2 * (2 + 2) * layer * 3 / 4)
