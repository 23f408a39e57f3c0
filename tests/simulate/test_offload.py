"""Offloading, and the numbers that other people's calculators print."""

import pytest

from course_lib.simulate import Transformer, model_state_bytes
from course_lib.simulate.framework_memory_estimates import (
    deepspeed_zero2,
    deepspeed_zero3,
    megatron_activation_bytes,
)
from course_lib.simulate.memory_formulas import (
    MEGATRON_BF16,
    activation_bytes,
    layer_activation_bytes,
)
from course_lib.simulate.offload import offload_optimizer

GB, GIB, MIB = 10**9, 2**30, 2**20
GPT_2 = Transformer(48, 1600, 25, seq=1024, vocab=50304)


def test_one_device_keeps_2_bytes_a_parameter_and_moves_4():
    ours = offload_optimizer(1e9)
    assert (ours.device, ours.host, ours.bus) == (2e9, 14e9, 4e9)
    assert ours.device == model_state_bytes(1e9, 1, 0) / 8


def test_13_billion_parameters_fit_a_v100_whose_states_would_need_six():
    # ZeRO-Offload's headline: 13B on one GPU, 10 times as large as before
    assert offload_optimizer(13e9).device < 32 * GB < model_state_bytes(13e9, 1, 0) / 6
    largest_before = 32 * GB / 16
    assert offload_optimizer(10e9).device + 10 * GB < 32 * GB < model_state_bytes(10e9, 1, 0)
    assert largest_before == 2e9


@pytest.mark.parametrize("devices", [1, 2, 3, 64])
def test_more_devices_share_the_host_and_the_bus(devices):
    ours = offload_optimizer(6e9, devices)
    assert ours.device == 12e9
    assert ours.host * devices == pytest.approx(14 * 6e9)
    assert ours.bus * devices == pytest.approx(4 * 6e9)


def test_gradients_in_fp32_make_the_way_down_twice_as_long():
    assert offload_optimizer(1e9, states=MEGATRON_BF16).bus == 6e9


def test_the_bus_takes_bytes_over_bandwidth():
    assert offload_optimizer(10e9).bus_seconds(16e9) == pytest.approx(2.5)


# ------------------------------------------------------------------------------------------------
# DeepSpeed: t5-3b, 2851e6 parameters, 32e6 in its largest layer, one node of 8 GPUs
# ------------------------------------------------------------------------------------------------

T5 = (2851e6, 32e6, 8, 1)


@pytest.mark.parametrize(
    ("offload", "zero_init", "host", "device"),
    [
        ("all", True, 71.69, 0.12),
        ("all", False, 127.45, 0.12),
        ("optimizer", True, 63.72, 0.78),
        ("optimizer", False, 127.45, 0.78),
        ("none", True, 1.43, 6.09),
        ("none", False, 127.45, 6.09),
    ],
)
def test_deepspeeds_table_for_stage_3(offload, zero_init, host, device):
    ours = deepspeed_zero3(*T5, offload, zero_init)
    assert (round(ours.host / GIB, 2), round(ours.device / GIB, 2)) == (host, device)


@pytest.mark.parametrize(
    ("offload", "host", "device"), [("optimizer", 127.45, 5.31), ("none", 127.45, 11.28)]
)
def test_deepspeeds_table_for_stage_2(offload, host, device):
    ours = deepspeed_zero2(2851e6, 8, 1, offload)
    assert (round(ours.host / GIB, 2), round(ours.device / GIB, 2)) == (host, device)


def test_the_documented_stage_2_without_offload_is_older_than_the_code():
    older = 4 * 2851e6 + 16 * 2851e6 / 8
    assert round(older / GIB, 2) == 15.93
    assert deepspeed_zero2(2851e6, 8).device < older


def test_more_nodes_share_what_is_offloaded():
    one, two = (deepspeed_zero3(2851e6, 32e6, 8, nodes, "all") for nodes in (1, 2))
    assert two.host == one.host / 2


# ------------------------------------------------------------------------------------------------
# Megatron
# ------------------------------------------------------------------------------------------------


def test_activations_that_megatron_printed():
    assert round(megatron_activation_bytes(GPT_2, 1) / MIB, 2) == 2785.59


@pytest.mark.parametrize("t", [2, 8])
@pytest.mark.parametrize("p", [2, 8])
def test_megatron_counts_layers_as_korthikanti_does_without_attention_matrices(t, p):
    rest = p * GPT_2.seq * (8 + GPT_2.hidden) / t
    ours = megatron_activation_bytes(GPT_2, 1, t, p, sequence_parallel=True) - rest
    theirs = activation_bytes(GPT_2, 1, t, p, 1, None, True, "selective")
    assert ours == pytest.approx(theirs)


def test_few_microbatches_and_chunks_scale_megatrons_estimate():
    whole = megatron_activation_bytes(GPT_2, 1, 2, 8)
    assert megatron_activation_bytes(GPT_2, 1, 2, 8, microbatches=2) == whole / 4
    assert megatron_activation_bytes(GPT_2, 1, 2, 8, microbatches=80) == whole
    assert megatron_activation_bytes(GPT_2, 1, 2, 8, chunks=3) == pytest.approx(
        whole * (1 + 7 / 24)
    )


def test_the_output_layer_counts_where_the_first_stage_is_also_the_last():
    logits = 4 * GPT_2.seq * (GPT_2.hidden + GPT_2.vocab)
    assert megatron_activation_bytes(GPT_2, 1, sequence_parallel=True) == (
        48 * layer_activation_bytes(GPT_2, 1, recompute="selective")
        + GPT_2.seq * (8 + GPT_2.hidden)
        + logits
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: offload_optimizer(1e9, 0), "world_size = 0"),
        (lambda: offload_optimizer(1e9).bus_seconds(0), "bandwidth = 0"),
        (lambda: deepspeed_zero2(1e9, 0), "gpus_per_node = 0"),
        (lambda: deepspeed_zero2(1e9, 8, 1, "all"), "'all' is none of 'none', 'optimizer'"),
        (lambda: deepspeed_zero3(1e9, 1e6, 8, 0), "nodes = 0"),
        (lambda: megatron_activation_bytes(GPT_2, 0), "micro_batch = 0"),
        (lambda: megatron_activation_bytes(GPT_2, 1, 1, 1, 0), "chunks = 0"),
    ],
)
def test_numbers_that_make_no_sense_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
