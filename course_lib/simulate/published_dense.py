"""Published runs of programs of today: LLaMA, Llama 3, and FSDP with MPT and Llama 2.

Of MosaicML's tables there are, for each model and machine, the rows on one node and on most nodes.
Two rows between, 70B on 64 and 1B on 32 A100 of 40 GB, are slower than their neighbours in the same
table by a fifth and more; no reason is given.
"""

from collections.abc import Iterator
from dataclasses import replace

from course_lib.techniques.mesh import Mesh

from .cluster import Cluster, dgx_a100, dgx_a100_40gb, dgx_h100
from .frameworks import FLASH_ATTENTION_1, GATHERED_CONTEXT, MODERN
from .memory_formulas import MEGATRON_BF16, MIXED_ADAM
from .models import MODELS
from .published_run import Run

LLAMA_65B = Run(
    name="LLaMA 65B",
    model=MODELS["LLaMA 65B"],
    cluster=dgx_a100.with_nodes(256),
    mesh=None,
    global_batch=2048,  # 4 million tokens
    flops_per_second=380 * MODELS["LLaMA 65B"].flops(1) / 2048,  # 380 tokens a second and device
    software=FLASH_ATTENTION_1,
    states=MEGATRON_BF16,
    zero=(0, 1, 2, 3),
    recompute=("none", "full"),
    source="Touvron et al. 2023, section 2.4",
)
LLAMA_3_405B = Run(
    name="Llama 3 405B on 8192",
    model=MODELS["Llama 3 405B"],
    cluster=dgx_h100.with_nodes(1024),
    mesh=Mesh(data=64, tensor=8, pipeline=16),
    global_batch=64 * 32,  # 16 million tokens
    flops_per_second=430e12,
    software=MODERN,
    states=MEGATRON_BF16,
    # "Sharding optimizer states and gradients", these once per step: stage 1 in the planner's terms
    zero=(1,),
    recompute=("none",),  # section 3.3.2: no activation checkpointing at 8192 tokens
    source="Llama Team 2024, Table 4",
)
LLAMA_3_405B_16K = replace(
    LLAMA_3_405B,
    name="Llama 3 405B on 16384",
    cluster=dgx_h100.with_nodes(2048),
    mesh=Mesh(data=128, tensor=8, pipeline=16),
    global_batch=128 * 16,
    flops_per_second=400e12,
)
# 16 sequences for each replica, of which there are 16,384 / (8 x 16 x 16)
LLAMA_3_405B_LONG = replace(
    LLAMA_3_405B_16K,
    name="Llama 3 405B, 131072 tokens",
    model=replace(MODELS["Llama 3 405B"], seq=131072),
    mesh=Mesh(data=8, tensor=8, context=16, pipeline=16),
    global_batch=8 * 16,
    flops_per_second=380e12,
    software=GATHERED_CONTEXT,
)
_MPT = (  # cluster, model, devices, microbatch, accumulated, recomputed, MFU in per cent
    (dgx_a100, "70B", 64, 8, 4, True, 53.33),
    (dgx_a100, "30B", 8, 3, 21, True, 55.30),
    (dgx_a100, "13B", 8, 2, 3, False, 59.57),
    (dgx_a100, "7B", 8, 6, 2, False, 64.23),
    (dgx_a100, "3B", 8, 10, 2, False, 62.11),
    (dgx_a100, "1B", 8, 14, 4, False, 59.86),
    (dgx_a100_40gb, "70B", 128, 4, 1, True, 48.91),
    (dgx_a100_40gb, "30B", 128, 6, 1, True, 52.25),
    (dgx_a100_40gb, "13B", 128, 16, 1, True, 51.93),
    (dgx_a100_40gb, "13B", 8, 4, 16, True, 43.94),
    (dgx_a100_40gb, "7B", 128, 18, 1, True, 50.14),
    (dgx_a100_40gb, "7B", 8, 12, 4, True, 50.92),
    (dgx_a100_40gb, "3B", 128, 6, 1, False, 54.80),
    (dgx_a100_40gb, "3B", 8, 5, 8, False, 57.82),
    (dgx_a100_40gb, "1B", 128, 10, 1, False, 54.41),
    (dgx_a100_40gb, "1B", 8, 8, 8, False, 56.23),
    (dgx_h100, "70B", 64, 8, 4, True, 42.57),
    (dgx_h100, "30B", 32, 14, 3, True, 43.92),
    (dgx_h100, "30B", 8, 3, 21, True, 38.11),
    (dgx_h100, "13B", 64, 2, 1, False, 39.86),
    (dgx_h100, "13B", 8, 2, 1, False, 39.79),
    (dgx_h100, "7B", 8, 6, 1, False, 46.44),
    (dgx_h100, "3B", 64, 6, 3, False, 40.80),
    (dgx_h100, "1B", 64, 20, 1, False, 40.85),
    (dgx_h100, "1B", 8, 14, 1, False, 41.82),
)


def _mpt() -> Iterator[Run]:
    for cluster, model, devices, size, accumulated, again, use in _MPT:
        name = f"MPT {model} on {devices} {cluster.name.removeprefix('DGX ')}"
        source = "MosaicML, llm-foundry, scripts/train/benchmarking, bf16, sequences of 2048"
        yield _fsdp(name, cluster, f"MPT {model}", devices, size, accumulated, again, use, source)


_TORCHTITAN = "torchtitan, docs/performance.md, 2024: FSDP2, gradients reduced in fp32"
_TITAN = (("13B", False, 61.1), ("70B", True, 50.5))  # model, recomputed, MFU in per cent
_400G, _800G = replace(dgx_a100, adapters=2), replace(dgx_h100, adapters=2)  # between nodes
_FMS = (  # cluster, model, devices, recomputed, MFU in per cent
    (_400G, "7B", 128, False, 57),
    (_400G, "70B", 128, True, 50),
    (_800G, "7B", 96, False, 37),
    (_800G, "70B", 96, True, 34),
)


def _llama_2() -> Iterator[Run]:
    """Looked up when the planner was finished."""
    for model, again, use in _TITAN:
        name = f"torchtitan {model} on 64 A100"
        size = f"Llama 2 {model}"
        yield _fsdp(name, dgx_a100, size, 64, 2, 1, again, use, _TORCHTITAN)
    for cluster, model, devices, again, use in _FMS:
        kind = "A100" if cluster is _400G else "H100"
        source = 'IBM and Meta, "Maximizing training throughput using PyTorch FSDP", 2024, bf16'
        name = f"FSDP {model} on {devices} {kind}"
        run = _fsdp(name, cluster, f"Llama 2 {model}", devices, 2, 1, again, use, source)
        yield replace(run, states=MIXED_ADAM)


def _fsdp(
    name: str,
    cluster: Cluster,
    model: str,
    devices: int,
    micro_batch: int,
    accumulated: int,
    again: bool,
    use: float,
    source: str,
) -> Run:
    """use: model FLOPs utilization in per cent."""
    return Run(
        name=name,
        model=MODELS[model],
        cluster=cluster.with_nodes(devices // 8),
        mesh=Mesh(data=devices),
        global_batch=devices * micro_batch * accumulated,
        flops_per_second=use / 100 * cluster.device.half_flops,
        software=MODERN,
        states=MEGATRON_BF16,
        zero=(3,),
        recompute=("full" if again else "none",),
        micro_batch=micro_batch,
        chosen=False,
        source=source,
    )


MPT = tuple(_mpt())
LLAMA_2 = tuple(_llama_2())
LLAMA_3_70B = _fsdp(
    "Llama 3 70B on 64 A100", dgx_a100, "Llama 3 70B", 64, 1, 1, True, 51.7, _TORCHTITAN
)
DENSE_RUNS = (
    LLAMA_65B,
    LLAMA_3_405B,
    LLAMA_3_405B_16K,
    LLAMA_3_405B_LONG,
    *MPT,
    *LLAMA_2,
    LLAMA_3_70B,
)
