"""Published runs of Megatron-LM and DeepSpeed, of 2021 and 2022, on A100s of 80 GB."""

from collections.abc import Iterator
from dataclasses import replace

from course_lib.techniques.mesh import Mesh

from .cluster import dgx_a100
from .frameworks import (
    DEEPSPEED_2021,
    MEGATRON_2021,
    MEGATRON_2022,
    MEGATRON_DEEPSPEED,
)
from .hardware import GB, Link
from .memory_formulas import MEGATRON_BF16, MEGATRON_FP16, Recompute
from .models import MODELS
from .published_run import Run

_TABLE_1 = (  # model, tensor, pipeline, devices, batch, TFLOP/s; microbatch and chunks as scripted
    ("1.7B", 1, 1, 32, 512, 137, 16, 1),
    ("3.6B", 2, 1, 64, 512, 138, 16, 1),
    ("7.5B", 4, 1, 128, 512, 142, 16, 1),
    ("18.4B", 8, 1, 256, 1024, 135, 8, 1),
    ("39.1B", 8, 2, 512, 1536, 138, 4, 1),
    ("76.1B", 8, 4, 1024, 1792, 140, 2, 3),
    ("145.6B", 8, 8, 1536, 2304, 148, 2, 2),
    ("310.1B", 8, 16, 1920, 2160, 155, 1, 2),
    ("MT-NLG 530B", 8, 35, 2520, 2520, 163, 1, 3),
    ("1T", 8, 64, 3072, 3072, 163, 1, 1),
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
    for model, tensor, pipeline, devices, batch, tera, size, chunks in _TABLE_1:
        source = "Narayanan et al., SC 2021, Table 1; Megatron-LM, examples/sc21/run_table_1.sh"
        name = f"Megatron-LM {model.split()[-1]}"
        run = _megatron(name, model, tensor, pipeline, devices, batch, tera * 1e12, source)
        yield replace(run, micro_batch=size, chunks=chunks, fitted=True)


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
        yield replace(
            run, software=MEGATRON_DEEPSPEED, states=MEGATRON_BF16, chunks=1, micro_batch=1
        )


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
    software=MEGATRON_DEEPSPEED,
    states=MEGATRON_BF16,
    zero=(1,),
    micro_batch=2,
    chunks=1,
)

MEGATRON_TABLE_1 = tuple(_table_1())
MEGATRON_RUNS = (*MEGATRON_TABLE_1, *_table_2(), *_table_5(), *_mt_nlg(), BLOOM)
