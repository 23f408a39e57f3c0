"""Sequences cut over ranks, and experts spread over them: their bytes, seconds and plans."""

import itertools
import time
from dataclasses import replace

import pytest

from course_lib.simulate import (
    MEGATRON_BF16,
    MODELS,
    MODERN,
    NEMO_AUTOMODEL,
    Cluster,
    Mesh,
    Mixture,
    Transformer,
    dgx_h100,
    plan,
)
from course_lib.simulate.frameworks import GATHERED_CONTEXT
from course_lib.simulate.hardware import H100, Link
from course_lib.simulate.layer_traffic import LayerTraffic
from course_lib.simulate.memory_formulas import layer_activation_bytes
from course_lib.simulate.plan_memory import footprint, saved_by_stage
from course_lib.simulate.plan_stages import Held, stage_layers, stage_parameters
from course_lib.simulate.plan_time import StageTimes
from course_lib.simulate.plan_traffic import Replicas, nodes_of_group, ring_seconds, swap_seconds

LLAMA = MODELS["Llama 3 405B"]
LONG = replace(LLAMA, seq=131072)
MIXTRAL = MODELS["Mixtral 8x7B"]
GB = 10**9

# 4 devices per node, as many adapters of 1 byte per second; 10 bytes per second inside
PLAIN = Cluster("plain", H100, 4, Link("in", 0, 10.0), Link("out", 0, 1.0), 4, nodes=4)


# ------------------------------------------------------------------------------------------------
# The size of a mixture
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "billions", "active", "off"),
    [
        ("Mixtral 8x7B", 46.7, 12.9, 0.012),  # Jiang et al. 2024
        ("Qwen3 30B-A3B", 30.5, 3.3, 0.08),  # a second embedding is a tenth of what is active
        ("DeepSeek-V3", 671, 37, 0.05),  # three of its layers have no experts
        ("Kimi K2", 1040, 32, 0.02),
    ],
)
def test_parameters_of_published_mixtures(name, billions, active, off):
    model = MODELS[name]
    assert model.parameters == pytest.approx(billions * 1e9, rel=off)
    assert model.active_parameters == pytest.approx(active * 1e9, rel=off)


def test_one_expert_that_all_choose_is_a_plain_mlp_and_a_router():
    plain = Transformer(4, 512, 8, 1024, 1000)
    one = Mixture(4, 512, 8, 1024, 1000, experts=1, chosen=1)
    assert one.passed == plain.passed + 512
    assert one.dense_parameters + one.expert_parameters == 12 * 512**2 + 512 + 2 * 512
    copies = 4 * 512  # on their way to the expert and back
    assert one.mlp_saved == plain.mlp_saved + copies
    difference = layer_activation_bytes(one, 2) - layer_activation_bytes(plain, 2)
    assert difference == 2 * 1024 * copies


def test_operations_are_those_of_the_chosen_experts():
    few, more = (replace(MIXTRAL, chosen=k) for k in (1, 2))
    expert = 3 * MIXTRAL.hidden * MIXTRAL.inner
    assert more.flops(1) - few.flops(1) == 6 * 32 * 4096 * expert
    assert more.parameters == few.parameters


# ------------------------------------------------------------------------------------------------
# Context
# ------------------------------------------------------------------------------------------------


def stages(model, mesh, software=MODERN, cluster=dgx_h100, recompute="none"):
    layers = stage_layers(model.layers, mesh.pipeline)
    held = stage_parameters(model, layers, mesh)[0]
    return StageTimes(model, cluster, software, mesh, layers, held, 1, recompute)


def test_a_rank_has_its_share_of_activations_computation_and_messages():
    whole, cut = (
        saved_by_stage(LONG, MODERN, Mesh(tensor=8, context=c), [126], 1, 1, 1, "none")[0]
        for c in (1, 4)
    )
    foreign = 4 * LONG.seq * LONG.kv_width / 8  # keys and values, 16 bits
    assert cut == pytest.approx(whole / 4 + 2 * foreign / 4)
    gathered = saved_by_stage(
        LONG, GATHERED_CONTEXT, Mesh(tensor=8, context=4), [126], 1, 1, 1, "none"
    )[0]
    assert gathered == pytest.approx(whole / 4 + foreign)
    one, four = (stages(LONG, Mesh(tensor=8, context=c)) for c in (1, 4))
    assert four.compute == pytest.approx(one.compute / 4)
    assert four.message == one.message / 4


@pytest.mark.parametrize(("recompute", "rings"), [("none", 4), ("full", 5)])
def test_keys_and_values_go_round_once_in_the_forward_and_with_gradients_in_the_backward(
    recompute, rings
):
    model = Transformer(1, 64, 8, seq=32, vocab=10, kv_heads=2)
    late = replace(MODERN, overlap=False)
    traffic = LayerTraffic(model, PLAIN, late, Mesh(context=4), 3, recompute)
    one = 3 / 4 * 2 * 3 * 32 * 16 * 2  # keys and values of 3 sequences, 16 wide, 16 bits
    assert traffic.context() == pytest.approx(rings * one / 10)
    assert LayerTraffic(model, PLAIN, late, Mesh(), 3, recompute).context() == 0
    split = LayerTraffic(model, PLAIN, late, Mesh(context=2, tensor=2), 3, recompute)
    assert split.context() == pytest.approx(rings * (1 / 2 * 4 / 3 * one / 2) / 10)


def test_a_ring_hides_behind_the_attention_of_long_sequences_and_a_gather_never_does():
    cluster = dgx_h100.with_nodes(16)
    shown = {}
    for seq in (8192, 131072):
        model = replace(LLAMA, seq=seq)
        for software in (MODERN, GATHERED_CONTEXT):
            traffic = LayerTraffic(model, cluster, software, Mesh(tensor=8, context=16), 1, "none")
            shown[seq, software is MODERN] = traffic.context()
    assert shown[131072, True] == 0 < shown[8192, True]
    assert 0 < shown[8192, True] < shown[8192, False] < shown[131072, False]


def test_gradients_are_averaged_and_zero_shards_over_both_axes():
    held = footprint(Held(1000), Mesh(data=2, context=4, tensor=2), 1, MEGATRON_BF16, gathered=0)
    assert held.total == 1000 * (2 + 4 + 12 / 8)
    cluster = dgx_h100.with_nodes(4)
    both, data = (
        Replicas(cluster, mesh, Held(1e9), 10, 8, 1, 2, 0, 0).seconds(0, MEGATRON_BF16, 1)
        for mesh in (Mesh(data=2, context=4, tensor=2), Mesh(data=8, tensor=2))
    )
    assert both == data > 0


def test_a_long_sequence_is_planned_with_ranks_that_share_it():
    cluster = dgx_h100.with_nodes(64)
    without = plan(LONG, cluster, 16, allow=lambda mesh: mesh.tensor <= 8)
    assert not without.ranked
    assert any("contexts=None" in sentence for sentence in without.remedies)
    found = plan(LONG, cluster, 16, allow=lambda mesh: mesh.tensor <= 8, contexts=None)
    assert found.best.mesh.context > 1
    assert all(p.mesh.world_size == 512 for p in found.ranked)
    assert {p.mesh.context for p in found.ranked} <= {2**k for k in range(10)}
    assert "context" in found.text().splitlines()[2]
    assert "context" not in plan(LLAMA, cluster, 512).text().splitlines()[2]


@pytest.mark.parametrize(
    ("contexts", "said"), [((), r"contexts = \(\)"), ((0, 2), r"contexts = \(0, 2\)")]
)
def test_sizes_of_the_context_axis_are_checked(contexts, said):
    with pytest.raises(ValueError, match=said):
        plan(LLAMA, dgx_h100, 8, contexts=contexts)


def test_a_sequence_that_does_not_divide_into_pairs_of_pieces_is_refused():
    odd = Transformer(8, 512, 8, seq=1026, vocab=1000)
    found = plan(odd, dgx_h100, 8, contexts=(4,))
    assert {refusal.why for refusal in found.refused} >= {
        "1026 tokens cannot be split evenly over 2 x 4 pieces"
    }
    assert not found.ranked


# ------------------------------------------------------------------------------------------------
# Experts
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "apart", "expected"),
    [
        (1, 1, 0),
        (4, 1, 100 * 3 / 4 / 10),  # one node
        (8, 1, 100 * 4 / 8 / 1),  # half stays on the node, and is there long before the rest
        (4, 4, 100 * 3 / 4 / 1),  # one on each node
        (8, 2, 100 * 6 / 8 / 1),  # two on each
    ],
)
def test_a_swap_takes_as_long_as_what_leaves_the_node(ranks, apart, expected):
    assert swap_seconds(PLAIN, ranks, apart, 100.0) == pytest.approx(expected)


def test_what_crosses_once_for_a_node_and_shared_adapters_count_in_a_swap():
    assert swap_seconds(PLAIN, 8, 1, 100.0, crossing=0.5) == pytest.approx(25)
    assert swap_seconds(replace(PLAIN, adapters=1), 8, 1, 100.0) == pytest.approx(200)
    late = replace(PLAIN, inside=Link("in", 0.1, 10.0), between=Link("out", 2.0, 1.0))
    assert swap_seconds(late, 4, 1, 0.0) == pytest.approx(0.1)
    assert swap_seconds(late, 8, 1, 0.0) == pytest.approx(2.0)


@pytest.mark.parametrize(("recompute", "swaps"), [("none", 4), ("full", 6)])
def test_tokens_go_to_their_experts_and_back_in_every_pass(recompute, swaps):
    model = Mixture(1, 64, 8, seq=32, vocab=10, experts=8, chosen=2)
    args = model, PLAIN, MODERN
    nbytes = 3 * 32 * 2 * 64 * 2  # 3 sequences, 2 experts, 16 bits
    traffic = LayerTraffic(*args, Mesh(data=4, expert=4), 3, recompute)
    assert traffic.expert() == pytest.approx(swaps * nbytes * 3 / 4 / 10)
    halves = LayerTraffic(*args, Mesh(data=2, expert=2, tensor=2), 3, recompute)
    assert halves.expert() == pytest.approx(swaps * nbytes / 2 / 2 / 10)
    assert LayerTraffic(*args, Mesh(data=4), 3, recompute).expert() == 0
    hidden = replace(MODERN, hides_experts=True)
    assert LayerTraffic(model, PLAIN, hidden, Mesh(data=4, expert=4), 3, recompute).expert() == 0


def test_nodes_that_a_token_goes_to_are_those_of_all_its_choices():
    chosen, nodes = 2, 4
    model = Mixture(1, 64, 8, seq=32, vocab=10, experts=16, chosen=chosen)
    mesh = Mesh(data=16, expert=16)
    assert nodes_of_group(PLAIN, 16, 1) == nodes
    # Experts that are equally likely, so that both may be on the same node
    hit = [len({*choice}) for choice in itertools.product(range(nodes), repeat=chosen)]
    once, always = (
        LayerTraffic(model, PLAIN, replace(MODERN, once_per_node=flag), mesh, 1, "none").expert()
        for flag in (True, False)
    )
    assert once / always == pytest.approx(sum(hit) / len(hit) / chosen)
    limited = replace(model, nodes=1)
    least = LayerTraffic(limited, PLAIN, replace(MODERN, once_per_node=True), mesh, 1, "none")
    assert least.expert() / always == pytest.approx(1 / chosen)


def test_experts_are_spread_over_their_axis_and_sharded_over_the_ranks_that_hold_the_same():
    mesh = Mesh(data=8, expert=4)
    (held,) = stage_parameters(MIXTRAL, [32], mesh)
    assert held.experts == 32 * MIXTRAL.expert_parameters / 4
    assert held.dense == MIXTRAL.parameters - 32 * MIXTRAL.expert_parameters
    states = footprint(Held(100, 1000), mesh, 1, MEGATRON_BF16, gathered=0)
    assert states.optimizer == 12 * (100 / 8 + 1000 / 2)
    assert states.parameters == 2 * 1100
    assert Held(100, 1000).shard(mesh) == 100 / 8 + 1000 / 2
    all_apart = footprint(Held(100, 1000), Mesh(data=8, expert=8), 3, MEGATRON_BF16, gathered=0)
    assert all_apart.total == 18 * (100 / 8 + 1000)


def test_gradients_of_experts_go_round_among_fewer_ranks():
    cluster, mesh = dgx_h100.with_nodes(4), Mesh(data=32, expert=8)
    found = Replicas(cluster, mesh, Held(1e9, 4e9), 10, 8, 1, 2, 0, 0)
    dense = ring_seconds(cluster, 32, 1, 4e9, 8, 10)
    experts = ring_seconds(cluster, 4, 8, 16e9, 8, 10)
    assert found.seconds(0, MEGATRON_BF16, 1) == pytest.approx(2 * (dense + experts))
    alone = Replicas(cluster, Mesh(data=8, expert=8), Held(0, 4e9), 10, 8, 1, 2, 0, 0)
    assert alone.seconds(0, MEGATRON_BF16, 1) == pytest.approx(
        2 * ring_seconds(cluster, 8, 1, 0, 8, 10)
    )


def test_experts_stay_inside_a_node_where_they_can():
    cluster = dgx_h100.with_nodes(8)
    found = plan(MIXTRAL, cluster, 256)
    assert found.best.mesh.tensor * found.best.mesh.expert <= 8
    assert found.best.mesh.expert > 1
    assert {p.mesh.expert for p in found.ranked} <= {1, 2, 4, 8}
    assert "expert" in found.text().splitlines()[2]
    near, far = (
        LayerTraffic(MIXTRAL, cluster, MODERN, Mesh(data=8, expert=8, tensor=t), 1, "none").expert()
        for t in (1, 8)
    )
    assert far > near / 8  # an eighth of the bytes each


def test_stages_may_differ_by_a_layer_where_the_program_can():
    assert stage_layers(61, 4) is None
    assert stage_layers(61, 4, uneven=True) == [16, 15, 15, 15]
    assert stage_layers(2, 4, uneven=True) is None
    assert stage_layers(126, 16, uneven=True) == stage_layers(126, 16)
    cluster = dgx_h100.with_nodes(32)
    found = plan(MODELS["DeepSeek-V3"], cluster, 512, NEMO_AUTOMODEL)
    assert any(p.mesh.pipeline > 1 for p in found.ranked)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"chosen": 9}, "chosen = 9 of experts = 8"),
        ({"matrices": 4}, "matrices = 4"),
        ({"inner": 0}, "inner = 0"),
        ({"kv_heads": 5}, "heads = 32 do not divide over kv_heads = 5"),
        ({"seq": 0}, "seq = 0"),
    ],
)
def test_mixtures_that_make_no_sense_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        replace(MIXTRAL, **change)


def test_sixteen_thousand_devices_with_a_further_axis_are_planned_in_less_than_two_seconds():
    cluster = dgx_h100.with_nodes(2048)
    for model, batch, contexts in ((LONG, 128, None), (MODELS["DeepSeek-V3"], 16384, (1,))):
        began = time.thread_time()
        found = plan(model, cluster, batch, contexts=contexts)
        assert time.thread_time() - began < 2
        assert found.best.mesh.world_size == 16384
