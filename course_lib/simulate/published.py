"""All published training runs that the planner is held against, from the oldest to the newest.

Taken are rows whose model, machine, batch and way to train are all published (LLaMA 65B lacks its
mesh). `accuracy.error_table` shows them all.

    published_run.py         what a run is
    published_megatron.py    Megatron-LM and DeepSpeed on A100s
    published_megatron_core.py   its descendant on H100s
    published_dense.py       programs of today; one run with long sequences
    published_experts.py     mixtures of experts
"""

from .published_dense import DENSE_RUNS, LLAMA_2, LLAMA_3_405B, LLAMA_3_405B_LONG, LLAMA_65B
from .published_experts import EXPERT_RUNS
from .published_megatron import MEGATRON_RUNS, MEGATRON_TABLE_1
from .published_megatron_core import MEGATRON_CORE_RUNS
from .published_run import Run

RUNS = (*MEGATRON_RUNS, *MEGATRON_CORE_RUNS, *DENSE_RUNS, *EXPERT_RUNS)

__all__ = [
    "EXPERT_RUNS",
    "LLAMA_2",
    "LLAMA_3_405B",
    "LLAMA_3_405B_LONG",
    "LLAMA_65B",
    "MEGATRON_CORE_RUNS",
    "MEGATRON_TABLE_1",
    "RUNS",
    "Run",
]
