"""What the ranks of a mesh send, counted by hand."""

from dataclasses import replace

import pytest

from course_lib.simulate import (
    DEEPSPEED_2021,
    MEGATRON_FP16,
    MODELS,
    MODERN,
    Mesh,
    Transformer,
    costs,
    dgx_a100,
)
from course_lib.simulate.cluster import Cluster
from course_lib.simulate.hardware import A100_80GB, GB, Link
from course_lib.simulate.layer_traffic import LayerTraffic
from course_lib.simulate.plan_stages import Held
from course_lib.simulate.plan_traffic import Replicas, ring_seconds, send_seconds

# 8 devices per node, 4 adapters of 1 byte per second; 10 bytes per second inside
PLAIN = Cluster("plain", A100_80GB, 8, Link("in", 0, 10.0), Link("out", 0, 1.0), 4, nodes=4)


# ------------------------------------------------------------------------------------------------
# Rings
# ------------------------------------------------------------------------------------------------


def test_on_one_node_a_ring_is_that_of_the_costs():
    near = dgx_a100.inside
    expected = costs.ring_all_gather(8, 1 * GB, near.alpha, 1 / near.ring_bandwidth)
    assert ring_seconds(dgx_a100, 8, 1, 1 * GB, rings=8) == pytest.approx(expected)
    assert near.ring_bandwidth == pytest.approx(240 * GB)
    assert ring_seconds(dgx_a100, 1, 1, 1 * GB, rings=8) == 0


@pytest.mark.parametrize(
    ("ranks", "apart", "rings", "speed"),
    [
        (32, 1, 1, 1),  # one ring over whole nodes leaves each by one adapter
        (32, 1, 2, 2),
        (32, 1, 8, 4),  # there are no more than four
        (16, 2, 8, 2),  # two groups share them
        (8, 4, 8, 1),  # four groups, an adapter for each
        (4, 8, 8, 0.5),  # eight groups on four adapters
        (4, 8, 1, 0.5),
    ],
)
def test_between_nodes_a_group_has_the_adapters_that_its_rings_and_neighbours_leave_it(
    ranks, apart, rings, speed
):
    took = ring_seconds(PLAIN, ranks, apart, 100.0, rings)
    assert took == pytest.approx((ranks - 1) / ranks * 100 / speed)


def test_a_ring_is_no_faster_than_the_links_inside():
    slow = replace(PLAIN, inside=Link("in", 0, 0.5))
    assert ring_seconds(slow, 32, 1, 100.0, 8) == pytest.approx(31 / 32 * 100 / 0.5)
    assert ring_seconds(slow, 4, 8, 100.0, 8) == pytest.approx(3 / 4 * 100 / 0.5)  # not used


def test_latency_is_that_of_all_hops_for_each_message():
    late = replace(PLAIN, inside=Link("in", 0.001, 10.0), between=Link("out", 0.1, 1.0))
    hops = 3 * 0.1 + (32 - 4) * 0.001
    for messages in (1, 5):
        took = ring_seconds(late, 32, 1, 0.0, 8, messages)
        assert took == pytest.approx(messages * hops)


def test_small_shards_on_many_ranks_pay_for_latency():
    few, many = (ring_seconds(dgx_a100.with_nodes(n), 8 * n, 1, 1e6, 8) for n in (2, 256))
    assert many > 20 * few
    few, many = (ring_seconds(dgx_a100.with_nodes(n), 8 * n, 1, 1e12, 8) for n in (2, 256))
    assert many < 1.1 * few


def test_a_send_crosses_the_network_unless_all_is_on_one_node():
    assert send_seconds(PLAIN, Mesh(pipeline=8), 10.0) == pytest.approx(1)
    assert send_seconds(PLAIN, Mesh(pipeline=4, tensor=8), 8.0) == pytest.approx(2)


def test_tensor_parallelism_pays_for_leaving_the_node():
    cluster = dgx_a100.with_nodes(4)
    for rings, factor in ((1, 9), (8, 1.1)):
        inside, across = (ring_seconds(cluster, t, 1, 1 * GB, rings) for t in (8, 16))
        assert across > factor * inside


# ------------------------------------------------------------------------------------------------
# Data parallelism
# ------------------------------------------------------------------------------------------------


def replicas(forward=0.0, backward=0.0, gathers=2, data=4):
    mesh = Mesh(data=data, tensor=8)
    return Replicas(dgx_a100.with_nodes(4), mesh, Held(1e9), 10, 1, 1, gathers, forward, backward)


def test_traffic_by_stage():
    times = [replicas().seconds(zero, MEGATRON_FP16, microbatches=3) for zero in range(4)]
    one = ring_seconds(dgx_a100.with_nodes(4), 4, 8, 2e9, 1, 10)
    both = one + 4 * 2e9 / A100_80GB.memory_bandwidth  # and four passes over memory
    assert times == pytest.approx([2 * one, 2 * one, one + 3 * both, 9 * both])
    assert replicas(gathers=3).seconds(3, MEGATRON_FP16, 3) == pytest.approx(12 * both)
    assert replicas(data=1).seconds(3, MEGATRON_FP16, 3) == 0


def test_computation_hides_all_but_what_each_microbatch_reduces():
    one = ring_seconds(dgx_a100.with_nodes(4), 4, 8, 2e9, 1, 10)
    busy = replicas(forward=100, backward=100)
    times = [busy.seconds(zero, MEGATRON_FP16, microbatches=3) for zero in range(4)]
    copies = 4 * 2e9 / A100_80GB.memory_bandwidth
    assert times == pytest.approx([0, 0, 3 * (one + copies), 3 * (one + 3 * copies)])
    halves = replicas(forward=one / 2, backward=one / 4)
    assert halves.seconds(0, MEGATRON_FP16, 3) == pytest.approx((2 - 1 / 4) * one)
    assert halves.seconds(1, MEGATRON_FP16, 3) == pytest.approx((1 - 1 / 4 + 1 - 1 / 2) * one)
    ahead = (2 - 3 / 4) * one
    assert halves.seconds(3, MEGATRON_FP16, 3) == pytest.approx(3 * (one + ahead + 3 * copies))


def test_only_deepspeed_gathers_a_large_layer_again_and_only_to_recompute():
    large, small = 1.8e9, 0.9e9
    assert DEEPSPEED_2021.gathers(large, "full") == 3
    assert DEEPSPEED_2021.gathers(small, "full") == 2
    assert DEEPSPEED_2021.gathers(large, "none") == 2
    assert MODERN.gathers(large, "full") == 2


# ------------------------------------------------------------------------------------------------
# Tensor parallelism
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recompute", "reduced", "passes"), [("none", 4, 3), ("full", 5, 4)])
def test_products_of_a_layer_hide_what_tensor_parallelism_sends_inside_of_a_node(
    recompute, reduced, passes
):
    model, hiding = MODELS["GPT-3 175B"], replace(MODERN, hides_tensor=True)

    def sent(cluster, software, tensor):
        return LayerTraffic(model, cluster, software, Mesh(tensor=tensor), 1, recompute).tensor()

    ring = ring_seconds(dgx_a100, 8, 1, 2 * model.seq * model.hidden, 8)
    assert sent(dgx_a100, MODERN, 8) == pytest.approx(reduced * 2 * ring)
    assert sent(dgx_a100, hiding, 8) == 0
    slow = dgx_a100.with_links(inside="10 GbE")
    products = passes * hiding.product_seconds(model, slow.device, 1, 8)
    assert sent(slow, hiding, 8) == pytest.approx(sent(slow, MODERN, 8) - products)
    two = dgx_a100.with_nodes(2)
    assert sent(two, hiding, 16) == sent(two, MODERN, 16) > 0


def test_a_layer_has_its_own_size_where_the_width_of_its_mlp_is_given():
    gated = Transformer(2, 8, 4, 16, 32, kv_heads=2, inner=20, matrices=3)
    attention = 2 * 8 * 8 + 2 * 8 * 4  # queries and output, keys and values of half the heads
    assert gated.passed == attention + 3 * 8 * 20
    assert gated.parameters == 2 * (gated.passed + 2 * 8) + (32 + 16) * 8
    assert gated.mlp_saved == 2 * 3 * 20  # gate, value and their product, 16 bits
    same = Transformer(2, 8, 4, 16, 32, inner=32)
    plain = Transformer(2, 8, 4, 16, 32)
    assert (same.passed, same.mlp_saved) == (plain.passed, plain.mlp_saved)
    with pytest.raises(ValueError, match="matrices = 4, and an MLP has 2 or 3"):
        replace(gated, matrices=4)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Llama 3 8B", 8.0),
        ("Llama 3 70B", 70.6),
        ("Nemotron-4 15B", 15.6),
        ("Nemotron-4 340B", 341),
    ],
)
def test_parameters_of_models_with_grouped_heads(name, billions):
    # All four have an output layer of their own besides the embedding
    model = MODELS[name]
    own = model.parameters + model.vocab * model.hidden
    assert own == pytest.approx(billions * 1e9, rel=0.01)
