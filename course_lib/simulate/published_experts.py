"""Published runs of mixtures of experts.

What was published is seconds of a step, or GPU hours; rates are these, counted as everywhere here.
"""

from collections.abc import Iterator
from dataclasses import replace

from course_lib.techniques.mesh import Mesh

from .cluster import dgx_h100
from .frameworks import DEEPSEEK_V3, NEMO_AUTOMODEL
from .hardware import GB, Link
from .memory_formulas import MIXED_ADAM, StateBytes
from .models import MODELS
from .published_run import Run

_NEMO = (  # model, devices, pipeline, expert, chunks, batch, microbatch, stage, seconds of a step
    ("DeepSeek-V3", 1024, 4, 64, 8, 8192, 1, 1, 37.87),
    ("DeepSeek-V3", 256, 4, 64, 8, 512, 1, 1, 8.18),
    ("Kimi K2", 256, 8, 32, 4, 512, 1, 1, 8.86),
    ("Qwen3 30B-A3B", 8, 1, 8, 1, 512, 4, 3, 21.773),
)


def _nemo() -> Iterator[Run]:
    """With activation_checkpointing; in a pipeline without reshard_after_forward: stage 1."""
    for model, devices, pipeline, expert, chunks, batch, size, zero, seconds in _NEMO:
        yield Run(
            name=f"{model} on {devices} H100",
            model=MODELS[model],
            cluster=dgx_h100.with_nodes(devices // 8),
            mesh=Mesh(data=devices // pipeline, pipeline=pipeline, expert=expert),
            global_batch=batch,
            flops_per_second=MODELS[model].flops(batch) / seconds / devices,
            software=NEMO_AUTOMODEL,
            states=MIXED_ADAM,
            zero=(zero,),
            recompute=("full",),
            micro_batch=size,
            chunks=chunks,
            chosen=False,
            source="NeMo AutoModel, docs/performance-summary.md and benchmark/configs, 2025, bf16",
        )


_H800_NVLINK = Link("NVLink of an H800", 3.4e-6, 200 * GB, ring_share=20.6 / 25)  # half an H100's
_HOURS = 2.664e6 / 14.8e12  # GPU hours per token, before the context was extended
_DEEPSEEK_V3 = replace(MODELS["DeepSeek-V3"], layers=62)  # one of them predicts a further token
DEEPSEEK = Run(
    name="DeepSeek-V3 on 2048 H800",
    model=_DEEPSEEK_V3,
    cluster=replace(dgx_h100.with_links(inside=_H800_NVLINK), name="H800").with_nodes(256),
    mesh=Mesh(data=128, pipeline=16, expert=64),
    global_batch=15360,
    flops_per_second=_DEEPSEEK_V3.flops(1) / 4096 / (_HOURS * 3600),
    software=DEEPSEEK_V3,
    states=StateBytes(2, 4, 8),  # gradients and copies in fp32, moments in bf16 (section 3.3.3)
    zero=(1,),
    recompute=("none",),
    micro_batch=1,
    chunks=1,  # DualPipe's bubble is smaller, about a third
    chosen=False,
    source="DeepSeek-AI 2024, sections 3.2 and 3.3, Table 1",
)
EXPERT_RUNS = (*_nemo(), DEEPSEEK)
