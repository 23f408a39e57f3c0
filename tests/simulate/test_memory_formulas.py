"""Memory and operations are those of the published tables."""

import pytest

from course_lib.simulate.memory_formulas import (
    FP32_ADAM,
    MEGATRON_BF16,
    MEGATRON_FP16,
    MIXED_ADAM,
    StateBytes,
    activation_bytes,
    layer_activation_bytes,
    model_state_bytes,
    step_traffic_elements,
)
from course_lib.simulate.models import MODELS
from course_lib.simulate.transformer import Transformer

GB, GIB, MIB = 10**9, 2**30, 2**20

# ------------------------------------------------------------------------------------------------
# ZeRO (Rajbhandari et al., SC 2020)
# ------------------------------------------------------------------------------------------------

TABLE_1 = {  # GB per device by data-parallel degree: three models, three stages each
    1: (120, 120, 120, 2048, 2048, 2048, 16000, 16000, 16000),
    4: (52.5, 41.3, 30, 896, 704, 512, 7000, 5500, 4000),
    16: (35.6, 21.6, 7.5, 608, 368, 128, 4750, 2875, 1000),
    64: (31.4, 16.6, 1.88, 536, 284, 32, 4187, 2218, 250),
    256: (30.4, 15.4, 0.47, 518, 263, 8, 4046, 2054, 62.5),
    1024: (30.1, 15.1, 0.12, 513, 257, 2, 4011, 2013, 15.6),
}
BOLD = {(7.5e9, 1): 64, (7.5e9, 2): 16, (7.5e9, 3): 4, (128e9, 3): 64, (1e12, 3): 1024}


@pytest.mark.parametrize("degree", TABLE_1)
def test_zero_table_1(degree):
    published = iter(TABLE_1[degree])
    for parameters in (7.5e9, 128e9, 1e12):
        for stage in (1, 2, 3):
            cell = next(published)
            ours = model_state_bytes(parameters, degree, stage) / GB
            decimals = len(str(cell).partition(".")[2])
            # The small model's cells are rounded, the large ones' cut off
            step = 10**-decimals
            assert cell - step / 2 - 1e-9 <= ours < cell + step, (parameters, stage)


@pytest.mark.parametrize(("parameters", "stage"), BOLD)
def test_the_first_degree_that_fits_a_v100_is_the_one_in_bold(parameters, stage):
    fits = [n for n in TABLE_1 if model_state_bytes(parameters, n, stage) <= 32 * GB]
    assert min(fits) == BOLD[parameters, stage]


def test_zero_figure_1():
    gb = [model_state_bytes(7.5e9, 64, stage) / GB for stage in range(4)]
    assert [round(size, 1) for size in gb] == [120, 31.4, 16.6, 1.9]


@pytest.mark.parametrize(
    ("degree", "savings"),
    [
        (2, (1.60, 1.78, 2)),
        (4, (2.29, 2.91, 4)),
        (8, (2.91, 4.27, 8)),
        (16, (3.37, 5.57, 16)),
        (64, (3.82, 7.21, 64)),
        (1024, (3.99, 7.95, 1024)),
    ],
)
def test_what_zero_saves_on_so_many_devices(degree, savings):
    # So 64x on 8 devices, as lessons say, is wrong: it is 8x there, and 64x on 64
    whole = model_state_bytes(1e9, degree, 0)
    ours = [whole / model_state_bytes(1e9, degree, stage) for stage in (1, 2, 3)]
    assert [round(saving, 2) for saving in ours] == list(savings)


def test_zero_needs_half_as_much_traffic_again_at_stage_3_only():
    assert [step_traffic_elements(100, stage) for stage in range(4)] == [200, 200, 200, 300]


def test_gpt_2_needs_24_gb_of_states_for_3_gb_of_parameters():
    assert model_state_bytes(1.5e9, 1, 0) == 24 * GB
    assert 1.5e9 * MIXED_ADAM.parameter == 3 * GB


def test_gpt_3_needs_700_gb_for_its_parameters_and_four_times_that_to_train():
    assert 175e9 * FP32_ADAM.parameter == 700 * GB
    assert model_state_bytes(175e9, 1, 0) == model_state_bytes(175e9, 1, 0, FP32_ADAM) == 2800 * GB


# ------------------------------------------------------------------------------------------------
# Bytes per parameter of DeepSpeed and Megatron
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "total", "kept", "sharded"),
    [(MEGATRON_FP16, 20, 4, 16), (MEGATRON_BF16, 18, 6, 12), (FP32_ADAM, 16, 8, 8)],
)
@pytest.mark.parametrize("d", [1, 2, 8, 32])
def test_megatrons_distributed_optimizer_is_zero_1(states, total, kept, sharded, d):
    # docs/user-guide/features/dist_optimizer.md: 4 + 16/d, 6 + 12/d, 8 + 8/d bytes
    assert states.total == total
    assert model_state_bytes(1, d, 1, states) == kept + sharded / d


@pytest.mark.parametrize(
    ("parameters", "degree", "mib"),
    [(1.5554e9, 1, 26699.47), (8.0305e9, 8, 57438.81), (0.6209e9, 32, 3774.61)],
)
def test_sizes_that_megatron_printed(parameters, degree, mib):
    ours = model_state_bytes(parameters, degree, 1, MEGATRON_BF16) / MIB
    assert ours == pytest.approx(mib, rel=2e-4)


def test_sizes_that_deepspeeds_estimators_document():
    # t5-3b: 2851e6 parameters, 32e6 in its largest layer, one node of 8 GPUs
    parameters, largest = 2851e6, 32e6
    stage_3 = 4 * largest + model_state_bytes(parameters, 8, 3, StateBytes(2, 4, 12))
    assert round(stage_3 / GIB, 2) == 6.09
    stage_2 = model_state_bytes(parameters, 8, 2, StateBytes(2, 2, 16))
    assert round(stage_2 / GIB, 2) == 11.28
    on_cpu = model_state_bytes(parameters, 8, 3, StateBytes(2, 0, 0)) + 4 * largest
    assert round(on_cpu / GIB, 2) == 0.78


# ------------------------------------------------------------------------------------------------
# Megatron-LM (Narayanan et al., SC 2021), Table 1
# ------------------------------------------------------------------------------------------------

MEGATRON = [  # billions, heads, hidden, layers, GPUs, batch, TFLOP/s a GPU, PFLOP/s, by Eq. 2
    (1.7, 24, 2304, 24, 32, 512, 137, 4.4, 1.652),
    (3.6, 32, 3072, 30, 64, 512, 138, 8.8, 3.562),
    (7.5, 32, 4096, 36, 128, 512, 142, 18.2, 7.468),
    (18.4, 48, 6144, 40, 256, 1024, 135, 34.6, 18.450),
    (39.1, 64, 8192, 48, 512, 1536, 138, 70.8, 39.096),
    (76.1, 80, 10240, 60, 1024, 1792, 140, 143.8, 76.051),
    (145.6, 96, 12288, 80, 1536, 2304, 148, 227.1, 145.622),
    (310.1, 128, 16384, 96, 1920, 2160, 155, 297.4, 310.131),
    (529.6, 128, 20480, 105, 2520, 2520, 163, 410.2, 529.601),
    (1008.0, 160, 25600, 128, 3072, 3072, 163, 502.0, 1008.039),
]


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: f"{row[0]}B")
def test_megatron_table_1(row):
    billions, a, h, layers, gpus, batch, tera, peta, by_eq_2 = row
    model = Transformer(layers, h, a, seq=2048, vocab=51200)
    assert round(model.parameters / 1e9, 3) == by_eq_2
    assert model.parameters / 1e9 == pytest.approx(billions, abs=0.06)
    eq_2 = 12 * layers * h**2 * (1 + 13 / (12 * h) + (51200 + 2048) / (12 * layers * h))
    assert model.parameters == pytest.approx(eq_2, rel=1e-12)
    eq_3 = 96 * batch * 2048 * layers * h**2 * (1 + 2048 / (6 * h) + 51200 / (16 * layers * h))
    assert model.flops(batch, recompute=True) == pytest.approx(eq_3, rel=1e-12)
    eq_7 = 72 * batch * 2048 * layers * h**2 * (1 + 2048 / (6 * h) + 51200 / (12 * layers * h))
    assert model.flops(batch) == pytest.approx(eq_7, rel=1e-12)
    assert gpus * tera / 1000 == pytest.approx(peta, rel=0.006)


def test_gpt_3_takes_a_third_more_operations_with_full_recomputation():
    gpt_3 = MODELS["GPT-3 175B"]
    assert gpt_3.flops(1536, recompute=True) / gpt_3.flops(1536) == pytest.approx(4 / 3, rel=0.01)


# ------------------------------------------------------------------------------------------------
# Activations (Korthikanti et al. 2022)
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "percent"),
    [
        ("22B", (66.8, 49.4, 16.1, 7.6)),
        ("GPT-3 175B", (62.0, 56.5, 18.5, 8.7)),
        ("MT-NLG 530B", (58.3, 61.9, 20.2, 9.5)),
        ("1T", (58.3, 61.9, 20.2, 9.5)),
    ],
)
def test_korthikanti_figure_7(name, percent):
    model = MODELS[name]
    base = layer_activation_bytes(model, 1, 8)
    ways = [(True, "none"), (False, "selective"), (True, "selective"), (False, "full")]
    ours = [100 * layer_activation_bytes(model, 1, 8, *way) / base for way in ways]
    assert [round(share, 1) for share in ours] == list(percent)


def test_korthikanti_table_2_in_its_own_letters():
    model, b, t = MODELS["GPT-3 175B"], 4, 8
    s, h, a = model.seq, model.hidden, model.heads
    sbh = s * b * h
    assert layer_activation_bytes(model, b) == sbh * (34 + 5 * a * s / h)
    assert layer_activation_bytes(model, b, t) == sbh * (10 + 24 / t + 5 * a * s / (h * t))
    assert layer_activation_bytes(model, b, t, True) == sbh * (34 / t + 5 * a * s / (h * t))
    assert layer_activation_bytes(model, b, t, recompute="selective") == sbh * (10 + 24 / t)
    assert layer_activation_bytes(model, b, t, True, "selective") == sbh * 34 / t
    assert layer_activation_bytes(model, b, t, recompute="full") == 2 * sbh


@pytest.mark.parametrize(
    ("name", "ratio", "saved"), [("GPT-3 175B", 80, 70), ("MT-NLG 530B", 64, 65)]
)
def test_selective_recomputation_saves_what_section_5_says(name, ratio, saved):
    model = MODELS[name]
    assert 5 * model.heads * model.seq / model.hidden == ratio
    kept = layer_activation_bytes(model, 1, recompute="selective") / layer_activation_bytes(
        model, 1
    )
    assert round(100 * (1 - kept)) == saved


@pytest.mark.parametrize("p", [1, 2, 8, 24])
def test_the_first_stage_holds_all_layers_worth_whatever_p_is(p):
    model = MODELS["GPT-3 175B"]
    whole = 96 * layer_activation_bytes(model, 1, 8)
    assert activation_bytes(model, 1, 8, pipeline_parallel=p) == pytest.approx(whole)
    few = activation_bytes(model, 1, 8, pipeline_parallel=p, microbatches=1)
    assert few == pytest.approx(whole / p)


def test_interleaving_holds_a_third_more_for_the_530b_model():
    model = MODELS["MT-NLG 530B"]
    plain, chunked = (activation_bytes(model, 1, 8, 35, chunks=v) for v in (1, 3))
    assert chunked / plain == pytest.approx(1.3238, abs=5e-5)


def test_a_layer_that_megatron_printed():
    model = Transformer(48, 1600, 25, seq=1024, vocab=50304)
    assert round(layer_activation_bytes(model, 1, recompute="selective") / MIB, 1) == 53.1


def test_activations_of_gpt_2_as_zero_estimates_them():
    # ZeRO, footnote 3: about 12 x hidden x batch x seq x layers elements, "about 60 GB"
    model = MODELS["GPT-2 1.5B"]
    estimate = 2 * 12 * model.hidden * 32 * model.seq * model.layers
    assert round(estimate / GB, 1) == 60.4
    assert layer_activation_bytes(model, 32, recompute="selective") * 48 > estimate


# ------------------------------------------------------------------------------------------------
# Bad input
# ------------------------------------------------------------------------------------------------

SMALL = Transformer(4, 8, 2, 16, 32)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: model_state_bytes(1e9, 0, 1), "world_size = 0"),
        (lambda: model_state_bytes(1e9, 8, 4), "no stage 4"),
        (lambda: model_state_bytes(-1, 8, 1), "parameters = -1"),
        (lambda: step_traffic_elements(1, 5), "no stage 5"),
        (lambda: StateBytes(2, -2, 12), "gradient = -2"),
        (lambda: layer_activation_bytes(SMALL, 0), "micro_batch = 0"),
        (lambda: layer_activation_bytes(SMALL, 1, 0), "tensor_parallel = 0"),
        (lambda: layer_activation_bytes(SMALL, 1, 1, True), "there is 1"),
        (lambda: layer_activation_bytes(SMALL, 1, recompute="half"), "'half'"),
        (lambda: activation_bytes(SMALL, 1, pipeline_parallel=3), "4 layers .* 3 stages"),
        (lambda: activation_bytes(SMALL, 1, chunks=0), "chunks = 0"),
        (lambda: activation_bytes(SMALL, 1, microbatches=0), "microbatches = 0"),
        (lambda: Transformer(0, 8, 2, 16, 32), "layers = 0"),
        (lambda: Transformer(4, 8, 3, 16, 32), "hidden = 8 .* heads = 3"),
    ],
)
def test_numbers_that_make_no_sense_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
