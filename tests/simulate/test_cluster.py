"""Clusters hand out the right links, and collectives cost what counting says."""

import pytest

from course_lib.simulate import costs
from course_lib.simulate.cluster import CLUSTERS, Cluster, dgx_a100, dgx_h100, v100_32gb
from course_lib.simulate.collectives_on_cluster import (
    ALGORITHMS,
    collective_seconds,
    hierarchical_all_reduce,
)
from course_lib.simulate.hardware import (
    A100_80GB,
    DEVICES,
    LINKS,
    Device,
    Link,
    fit_link,
)

MB = 10**6


def test_published_peaks():
    assert A100_80GB.half_flops == 312e12  # the peak of Megatron-LM's Table 1
    assert {name: device.memory // 10**9 for name, device in DEVICES.items()} == {
        "V100 SXM2 32 GB": 32,
        "A100 SXM 40 GB": 40,
        "A100 SXM 80 GB": 80,
        "H100 SXM 80 GB": 80,
        "H200 SXM 141 GB": 141,
    }


def test_everything_says_where_its_numbers_come_from():
    assert all(thing.source for thing in [*DEVICES.values(), *LINKS.values()])


def test_a_message_takes_latency_and_bytes_over_bandwidth():
    link = Link("wire", latency=2e-6, bandwidth=1e9)
    assert link.seconds(0) == 2e-6
    assert link.seconds(3e9) == pytest.approx(3.000002)


def test_ranks_fill_node_after_node():
    cluster = dgx_a100.with_nodes(2)
    assert cluster.size == 16
    assert cluster.link(0, 7).name == cluster.link(8, 15).name == "NVLink 3"
    assert cluster.link(7, 8).name == "InfiniBand HDR"
    assert cluster.slowest_link([0, 1, 2]).name == "NVLink 3"
    assert cluster.slowest_link([0, 1, 9]).name == "InfiniBand HDR"


def test_links_are_swapped_by_name():
    slow = dgx_a100.with_links(inside="10 GbE", between=LINKS["25 GbE"])
    assert (slow.inside.bandwidth, slow.between.bandwidth) == (1.25e9, 3.125e9)
    assert slow.device is dgx_a100.device
    assert dgx_a100.with_links() == dgx_a100


def test_presets_are_what_they_are_called():
    assert len(CLUSTERS) == 5
    assert v100_32gb.device.memory == 32e9
    assert v100_32gb.size == 16
    assert dgx_h100.inside.bandwidth == 1.5 * dgx_a100.inside.bandwidth


def test_a_flat_collective_goes_at_the_pace_of_its_slowest_link():
    cluster = dgx_a100.with_nodes(4)
    for ranks, link in (([0, 1, 2, 3], cluster.inside), (list(range(32)), cluster.between)):
        ours = collective_seconds(cluster, "all_reduce", ranks, 100 * MB)
        assert ours == costs.ring_all_reduce(len(ranks), 100 * MB, link.alpha, link.beta)


def test_every_algorithm_has_a_price_and_one_rank_pays_nothing():
    for op, known in ALGORITHMS.items():
        for name in known:
            assert collective_seconds(dgx_a100, op, range(8), MB, name) > 0
            assert collective_seconds(dgx_a100, op, [3], MB, name) == 0


def test_a_hierarchical_all_reduce_is_its_three_parts():
    cluster = dgx_a100.with_nodes(4)
    a, b = cluster.inside, cluster.between
    by_hand = (
        7 * a.alpha + 7 / 8 * 64 * MB * a.beta  # reduce-scatter over 8
        + 6 * b.alpha + 2 * 3 / 4 * 8 * MB * b.beta  # all-reduce of 8 MB over 4, an adapter each
        + 7 * a.alpha + 7 / 8 * 64 * MB * a.beta  # all-gather over 8
    )  # fmt: skip
    assert collective_seconds(
        cluster, "all_reduce", range(32), 64 * MB, "hierarchical"
    ) == pytest.approx(by_hand)


def test_a_hierarchical_all_reduce_on_one_node_is_the_ring():
    for n in (1, 2, 8):
        assert hierarchical_all_reduce(dgx_a100, range(n), MB) == pytest.approx(
            collective_seconds(dgx_a100, "all_reduce", range(n), MB)
        )


def test_hierarchy_beats_the_flat_ring_on_many_nodes_and_shared_adapters_slow_it():
    cluster = dgx_a100.with_nodes(128)
    flat, layered = (
        collective_seconds(cluster, "all_reduce", range(1024), 100 * MB, name)
        for name in ("ring", "hierarchical")
    )
    assert layered < flat / 3
    few = Cluster("few", A100_80GB, 8, cluster.inside, cluster.between, adapters=2, nodes=4)
    many = Cluster("many", A100_80GB, 8, cluster.inside, cluster.between, adapters=8, nodes=4)
    slow, fast = (hierarchical_all_reduce(c, range(32), 1000 * MB) for c in (few, many))
    assert 2 < slow / fast < 4


def test_an_all_to_all_moves_what_pairs_exchange():
    # 4 ranks, a quarter of the tensor to each of 3 others, one after the other
    link = dgx_a100.inside
    ours = collective_seconds(dgx_a100, "all_to_all", range(4), 8 * MB)
    assert ours == pytest.approx(3 * link.seconds(2 * MB))


@pytest.mark.parametrize("p", [2, 3, 4, 5, 8])
def test_trees_have_as_many_levels_as_it_takes_to_reach_everyone(p):
    reached = levels = 1
    while reached < p:
        reached, levels = 2 * reached, levels + 1
    levels -= 1
    assert costs.binomial_broadcast(p, 1000, 1.0, 0.5) == levels * 501
    assert costs.binomial_reduce(p, 1000, 1.0, 0.5, 0.25) == levels * 751
    assert costs.dissemination_barrier(p, 1000, 1.0, 0.5) == levels
    both = costs.binomial_reduce(p, 10, 1, 1, 1) + costs.binomial_broadcast(p, 10, 1, 1, 1)
    assert both == costs.tree_all_reduce(p, 10, 1, 1, 1)


def test_a_fit_finds_the_link_that_made_the_times():
    link = Link("true", 30e-6, 2e9)
    sizes = [0, 1000, 10**5, 10**7, 10**8]
    fitted = fit_link("fitted", sizes, [link.seconds(size) for size in sizes], shared=True)
    assert fitted.latency == pytest.approx(30e-6)
    assert fitted.bandwidth == pytest.approx(2e9)
    assert fitted.shared


def test_a_fit_takes_small_messages_as_seriously_as_large_ones():
    # 10% noise on 100 MB is a hundred times the latency, and must not drown it
    link = Link("true", 30e-6, 2e9)
    sizes = [1, 10, 100, 1000, 10**8]
    times = [link.seconds(size) for size in sizes]
    times[-1] *= 1.1
    assert fit_link("fitted", sizes, times).latency == pytest.approx(30e-6, rel=0.01)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Link("wire", -1e-6, 1e9), "wire: latency = -1e-06"),
        (lambda: Link("wire", 0, 0), "wire: bandwidth = 0"),
        (lambda: Device("chip", 1, 1, -5.0, 1), "chip: half_flops = -5.0"),
        (lambda: dgx_a100.with_nodes(0), "DGX A100: nodes = 0"),
        (lambda: dgx_a100.with_links(inside="string"), "'string'; there are NVLink 2"),
        (lambda: dgx_a100.node(8), "rank 8 on DGX A100 with 8 devices"),
        (lambda: dgx_a100.link(0, -1), "rank -1 on DGX A100"),
        (lambda: dgx_a100.require(20), r"20 ranks .* 8 devices; with_nodes\(3\) has room"),
        (lambda: collective_seconds(dgx_a100, "gossip", [0, 1], 1), "'gossip'"),
        (lambda: collective_seconds(dgx_a100, "all_reduce", [0], 1, "magic"), "'magic'; there"),
        (lambda: collective_seconds(dgx_a100, "all_reduce", [0], -1), "-1 bytes"),
        (
            lambda: hierarchical_all_reduce(dgx_a100.with_nodes(2), [0, 1, 8], 1),
            "nodes with 1 and 2 of the ranks",
        ),
        (lambda: fit_link("wire", [1, 2], [1.0]), "2 sizes and 1 times"),
        (lambda: fit_link("wire", [1, 2], [1.0, 0.0]), "message of 2 bytes = 0.0"),
        (lambda: fit_link("wire", [1, 2], [2.0, 1.0]), "no bandwidth can be fitted"),
    ],
)
def test_what_cannot_be_is_refused_with_its_number(make, said):
    with pytest.raises(ValueError, match=said):
        make()
