"""Published runs of Megatron-Core on H100s: the benchmark recipes of its makers, in 16 and 8 bits.

What was published is seconds of a step; rates are these, counted as everywhere here. Of each table
there are the rows on fewest and on most devices. One mesh serves all sizes and both precisions, so
it is ranked once, on most devices in 16 bits.
"""

from collections.abc import Iterator
from dataclasses import replace

from course_lib.techniques.mesh import Mesh

from .cluster import dgx_h100
from .frameworks import EIGHT_BITS, MEGATRON_CORE
from .memory_formulas import MEGATRON_BF16, MIXED_ADAM
from .models import MODELS
from .published_run import Run

_TABLES = (
    # model, tensor, context, pipeline, chunks, microbatch, and of each size:
    # devices, batch, seconds of a step in 16 bits, in 8 bits
    ("GPT-3 175B", 4, 1, 8, 12, 1, ((128, 256, 8.309, 5.626), (2048, 4096, 8.49, 5.96))),
    ("Nemotron-4 15B", 4, 1, 1, 1, 4, ((16, 64, 2.812, 2.039), (2048, 8192, 2.887, 2.12))),
    ("Nemotron-4 340B", 8, 1, 8, 12, 1, ((128, 32, 4.61, 3.16), (2048, 512, 4.84, 3.49))),
    ("Llama 3 8B", 1, 2, 1, 1, 1, ((8, 128, 12.91, 9.67), (128, 2048, 13.10, 9.82))),
    ("Llama 3 70B", 4, 2, 4, 5, 1, ((64, 128, 14.72, 11.01), (2048, 4096, 14.98, 11.39))),
    ("Llama 3 405B", 8, 2, 9, 7, 1, ((576, 252, 17.5, 11.0), (2304, 1008, 17.7, 11.2))),
)
_GRADIENTS_IN_16_BITS = ("GPT-3 175B", "Nemotron-4 340B")  # by `grad_sync_dtype`
# By `NVTE_FUSED_ATTN=0`, for the 340B: FlashAttention-2 rather than cuDNN's
_FLASH_ATTENTION_2 = replace(MEGATRON_CORE, attention=None)


def _megatron_core() -> Iterator[Run]:
    for name, tensor, context, pipeline, chunks, size, rows in _TABLES:
        model = MODELS[name]
        software = _FLASH_ATTENTION_2 if name == "Nemotron-4 340B" else MEGATRON_CORE
        for devices, batch, *seconds in rows:
            run = Run(
                name=f"Megatron-Core {name.split()[-1]} on {devices} H100",
                model=model,
                cluster=dgx_h100.with_nodes(devices // 8),
                mesh=Mesh(
                    data=devices // tensor // context // pipeline,
                    tensor=tensor,
                    context=context,
                    pipeline=pipeline,
                ),
                global_batch=batch,
                flops_per_second=model.flops(batch) / seconds[0] / devices,
                software=software,
                states=MIXED_ADAM if name in _GRADIENTS_IN_16_BITS else MEGATRON_BF16,
                zero=(1,),
                recompute=("none",),
                micro_batch=size,
                chunks=chunks,
                chosen=devices == rows[-1][0],
                source="NVIDIA, dgxc-benchmarking 25.01, READMEs and the settings beside them",
            )
            yield run
            yield replace(
                run,
                name=f"{run.name}, 8 bits",
                flops_per_second=model.flops(batch) / seconds[1] / devices,
                software=replace(software, products=EIGHT_BITS),
                chosen=False,
            )


MEGATRON_CORE_RUNS = tuple(_megatron_core())
