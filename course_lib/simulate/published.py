"""Published training runs as data: what was run, on what, and how fast it was said to be.

Taken are rows whose model, machine, batch and way to train are all published (LLaMA 65B lacks its
mesh), and of MosaicML's tables, for each model and machine, the rows on one node and on most nodes.
Two rows between, 70B on 64 and 1B on 32 A100 of 40 GB, are slower than their neighbours in the same
table by a fifth and more; no reason is given. `accuracy.error_table` shows them all.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from course_lib.techniques.mesh import Mesh

from .cluster import Cluster, dgx_a100, dgx_a100_40gb, dgx_h100
from .hardware import GB, Link
from .memory import MEGATRON_BF16, MEGATRON_FP16, MIXED_ADAM, Recompute, StateBytes
from .models import MODELS
from .planner import plan
from .plans import Plan, Plans
from .software import DEEPSPEED_2021, MEGATRON_2021, MEGATRON_2022, MODERN, Software
from .transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that was reported. What is None was not published, or left to choose.

    flops_per_second   of one device; `recompute_counts` says that it includes the recomputation,
                       as Megatron-LM counted in 2021
    fitted             it had a part in fitting its software's two numbers
    chosen             its authors took this mesh for the best, rather than to compare it
    """

    name: str
    model: Transformer
    cluster: Cluster
    mesh: Mesh | None
    global_batch: int
    flops_per_second: float
    software: Software
    states: StateBytes
    zero: tuple[int, ...]
    recompute: tuple[Recompute, ...]
    source: str
    micro_batch: int | None = None
    chunks: int | None = None
    recompute_counts: bool = False
    fitted: bool = False
    chosen: bool = True

    def plans(self) -> Plans:
        """The planner on the run's machine, free to choose mesh, microbatch and schedule."""
        return plan(
            self.model,
            self.cluster,
            self.global_batch,
            self.software,
            self.states,
            self.zero,
            self.recompute,
        )

    def as_run(self) -> Plan:
        """The planner on what was run, its free choices only where nothing was published.

        It counts 34 sbh bytes per layer, of which some programs keep less: where that is more than
        the device has, the run shows that there was room.
        """
        try:
            return self._as_run(self.cluster).best
        except ValueError:
            roomy = replace(self.cluster.device, memory=10**6 * GB)
            return self._as_run(replace(self.cluster, device=roomy)).best

    def said_of(self, plan: Plan) -> float:
        """The rate of a device under `plan`, counted as the run was."""
        return plan.hardware_flops_per_second if self.recompute_counts else plan.flops_per_second

    def _as_run(self, cluster: Cluster) -> Plans:
        return plan(
            self.model,
            cluster,
            self.global_batch,
            self.software,
            self.states,
            self.zero,
            self.recompute,
            lambda mesh: self.mesh in (None, mesh),
            self.micro_batch,
            self.chunks,
        )


# ------------------------------------------------------------------------------------------------
# Megatron-LM and DeepSpeed on A100s of 80 GB
# ------------------------------------------------------------------------------------------------

_TABLE_1 = (  # model, tensor, pipeline, devices, batch, TFLOP/s
    ("1.7B", 1, 1, 32, 512, 137),
    ("3.6B", 2, 1, 64, 512, 138),
    ("7.5B", 4, 1, 128, 512, 142),
    ("18.4B", 8, 1, 256, 1024, 135),
    ("39.1B", 8, 2, 512, 1536, 138),
    ("76.1B", 8, 4, 1024, 1792, 140),
    ("145.6B", 8, 8, 1536, 2304, 148),
    ("310.1B", 8, 16, 1920, 2160, 155),
    ("MT-NLG 530B", 8, 35, 2520, 2520, 163),
    ("1T", 8, 64, 3072, 3072, 163),
)
_TABLE_2 = (  # model, tensor, pipeline, devices, batch, microbatch, TFLOP/s
    ("GPT-3 175B", 8, 12, 384, 1536, 1, 153),
    ("GPT-3 175B", 8, 12, 768, 1536, 1, 149),
    ("GPT-3 175B", 8, 12, 1536, 1536, 1, 141),
    ("MT-NLG 530B", 8, 35, 560, 2240, 1, 171),
    ("MT-NLG 530B", 8, 35, 1120, 2240, 1, 167),
    ("MT-NLG 530B", 8, 35, 2240, 2240, 1, 159),
    ("GPT-3 175B", 1, 1, 384, 1536, 4, 144),
    ("GPT-3 175B", 1, 1, 768, 1536, 2, 88),
    ("GPT-3 175B", 1, 1, 1536, 1536, 1, 44),
    ("MT-NLG 530B", 1, 1, 640, 2560, 4, 138),
    ("MT-NLG 530B", 1, 1, 1120, 2240, 2, 98),
    ("MT-NLG 530B", 1, 1, 2240, 2240, 1, 48),
)
_TABLE_5 = (  # model, pipeline, chunks, devices, batch, microbatch, seconds: all again, selective
    ("22B", 1, 1, 8, 4, 4, 1.42, 1.10),
    ("GPT-3 175B", 8, 3, 64, 64, 1, 18.13, 13.75),
    ("MT-NLG 530B", 35, 3, 280, 280, 1, 49.05, 37.83),
    ("1T", 64, 1, 512, 512, 1, 94.42, 71.49),
)
_MT_NLG = ((2240, 126), (2800, 121), (3360, 113))  # devices, TFLOP/s


def _megatron(
    name: str,
    model: str,
    tensor: int,
    pipeline: int,
    devices: int,
    batch: int,
    flops: float,
    source: str,
) -> Run:
    return Run(
        name=name,
        model=MODELS[model],
        cluster=dgx_a100.with_nodes(devices // 8),
        mesh=Mesh(data=devices // tensor // pipeline, tensor=tensor, pipeline=pipeline),
        global_batch=batch,
        flops_per_second=flops,
        recompute_counts=True,
        software=MEGATRON_2021,
        states=MEGATRON_FP16,
        zero=(0,),
        recompute=("full",),
        source=source,
    )


def _table_1() -> Iterator[Run]:
    for model, tensor, pipeline, devices, batch, tera in _TABLE_1:
        source = "Narayanan et al., SC 2021, Table 1"
        name = f"Megatron-LM {model.split()[-1]}"
        run = _megatron(name, model, tensor, pipeline, devices, batch, tera * 1e12, source)
        yield replace(run, fitted=True)


def _table_2() -> Iterator[Run]:
    for model, tensor, pipeline, devices, batch, size, tera in _TABLE_2:
        zero_3 = tensor == 1
        name = f"{'ZeRO-3' if zero_3 else 'PTD-P'} {model.split()[-1]} on {devices}"
        source = "Narayanan et al., SC 2021, Table 2"
        run = _megatron(name, model, tensor, pipeline, devices, batch, tera * 1e12, source)
        run = replace(run, micro_batch=size)
        if zero_3:
            run = replace(run, software=DEEPSPEED_2021, zero=(3,), chosen=False)
        yield run


def _table_5() -> Iterator[Run]:
    for model, pipeline, chunks, devices, batch, size, again, selective in _TABLE_5:
        ways: tuple[tuple[str, Recompute, float], ...] = (
            ("full", "full", again),
            ("selective", "selective", selective),
        )
        for way, recompute, seconds in ways:
            flops = MODELS[model].flops(batch) / seconds / devices
            source = "Korthikanti et al. 2022, Tables 3 and 5"
            name = f"recompute {way}, {model.split()[-1]}"
            run = _megatron(name, model, 8, pipeline, devices, batch, flops, source)
            yield replace(
                run,
                software=MEGATRON_2021 if recompute == "full" else MEGATRON_2022,
                recompute=(recompute,),
                recompute_counts=False,
                micro_batch=size,
                chunks=chunks,
                chosen=False,
            )


def _mt_nlg() -> Iterator[Run]:
    for devices, tera in _MT_NLG:
        source = "Smith et al. 2022, section 2.3"
        name = f"MT-NLG 530B on {devices}"
        run = _megatron(name, "MT-NLG 530B", 8, 35, devices, 1920, tera * 1e12, source)
        # bfloat16 with DeepSpeed's pipeline, which does not interleave
        yield replace(run, states=MEGATRON_BF16, chunks=1, micro_batch=1)


_OMNI_PATH = Link("Omni-Path", 14e-6, 12.5 * GB, source="100 Gbit/s; latency as InfiniBand's")
BLOOM = replace(
    _megatron(
        "BLOOM 176B",
        "BLOOM 176B",
        4,
        12,
        384,
        2048,
        150e12,
        'BigScience, "The Technology Behind BLOOM Training", 2022',
    ),
    cluster=replace(dgx_a100.with_links(between=_OMNI_PATH), adapters=4).with_nodes(48),
    states=MEGATRON_BF16,
    zero=(1,),
    micro_batch=2,
    chunks=1,
)

# ------------------------------------------------------------------------------------------------
# Programs of today
# ------------------------------------------------------------------------------------------------

LLAMA_65B = Run(
    name="LLaMA 65B",
    model=MODELS["LLaMA 65B"],
    cluster=dgx_a100.with_nodes(256),
    mesh=None,
    global_batch=2048,  # 4 million tokens
    flops_per_second=380 * MODELS["LLaMA 65B"].flops(1) / 2048,  # 380 tokens a second and device
    software=MODERN,
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
    # "Sharding optimizer states and gradients", these once a step: stage 1 in the planner's terms
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
        source = "torchtitan, docs/performance.md, 2024: FSDP2, gradients reduced in fp32"
        run = _fsdp(
            f"torchtitan {model} on 64 A100",
            dgx_a100,
            f"Llama 2 {model}",
            64,
            2,
            1,
            again,
            use,
            source,
        )
        yield replace(run, states=MEGATRON_BF16)
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


MEGATRON_TABLE_1 = tuple(_table_1())
MPT = tuple(_mpt())
LLAMA_2 = tuple(_llama_2())
RUNS = (
    *MEGATRON_TABLE_1,
    *_table_2(),
    *_table_5(),
    *_mt_nlg(),
    BLOOM,
    LLAMA_65B,
    LLAMA_3_405B,
    LLAMA_3_405B_16K,
    *MPT,
    *LLAMA_2,
)
