"""Programs that published runs were trained with: what each does, and where that is told.

`matrix` and `passes` are the same for all of them (`planner_assumptions.py`).
"""

from dataclasses import replace

from .planner_assumptions import Software

# Facts of Megatron-LM's code for SC 2021 (commit de7dc40, with the scripts of the paper's tables):
#
# - An interleaved schedule needs more than two stages (megatron/arguments.py).
# - Without a pipeline the scripts take torch's DistributedDataParallel, which reduces behind the
#   last backward; with one, all gradients are reduced after it (megatron/training.py).
# - Stages wait for each message (megatron/p2p_communication.py). Of the model with 10^12 parameters
#   section 5.9 tells 892 GB/s across the middle of the pipelines. 48 adapters of 25 GB/s join the
#   halves there, 2400 GB/s with both directions. (Both are meant: the 12.9 TB/s that it tells of
#   all-reduces is more than 512 rings can carry across a cut in one direction, 12.8.)
#
# Its collectives are taken as the ring of lesson 02, which comes to each node once: one adapter.
MEGATRON_2021 = Software(
    name="Megatron-LM of 2021",
    matrix=0.82,
    passes=2.5,
    fused_attention=False,
    sequence_parallel=False,
    overlap=False,
    overlap_alone=True,
    rings=1,
    sends=892 / 2400,
    interleaves_from=3,
)
MEGATRON_2022 = replace(
    MEGATRON_2021, name="Megatron-LM with sequence parallelism", sequence_parallel=True
)
# Around Megatron-LM's layers, DeepSpeed's pipeline, which does not interleave, and an optimizer for
# bfloat16 that sums gradients in fp32: `hp_grad.add_(lp_grad.to(float))`
# (deepspeed/runtime/bf16_optimizer.py of 2022; what MT-NLG had before was not published).
# BigScience found it "a bit slower" than fp16's.
MEGATRON_DEEPSPEED = replace(
    MEGATRON_2021, name="Megatron-LM's layers in DeepSpeed's pipeline", converts=True
)
# The same kernels and the same ring. By DeepSpeed's documentation and code of stage 3, parameters
# are fetched ahead (stage3_prefetch_bucket_size), each weight matrix by itself, of which a layer
# has four: biases are below stage3_param_persistence_threshold = 10^5 and stay. They are let go
# unless they are used again within stage3_max_reuse_distance = 10^9 parameters.
DEEPSPEED_2021 = replace(
    MEGATRON_2021,
    name="DeepSpeed of 2021 around Megatron-LM's layers",
    overlap=True,
    messages=4,
    keeps=1e9,
)
# NCCL makes a ring for each adapter; FSDP gathers a block at a time, and recomputes it while it is
# gathered (PyTorch's documentation of `fully_shard`); `torch.utils.checkpoint` stops early.
MODERN = Software(
    name="a program of today",
    matrix=MEGATRON_2021.matrix,
    passes=MEGATRON_2021.passes,
    fused_attention=True,
    sequence_parallel=True,
    overlap=True,
    rings=8,
    stops_early=True,
)
# LLaMA's attention has the backward of the first FlashAttention (Touvron et al. 2023, section 2.4),
# which reached 25 to 40 % of an A100's peak (Dao, "FlashAttention-2", 2023, abstract).
FLASH_ATTENTION_1 = replace(MODERN, name="a program of 2022", attention=0.33)
# Keys and values are gathered before attention (Llama Team 2024, section 3.3.2).
GATHERED_CONTEXT = replace(MODERN, name="a program that gathers keys", ring_attention=False)
# cuDNN's attention on H100s, which Transformer Engine takes, is about as fast as FlashAttention-3:
# 1.5 to 2 times FlashAttention-2's 35 % (Shah et al. 2024, abstract, Figure 5).
_CUDNN_ATTENTION = 1.75 * 0.35
# Megatron-Core in NeMo, as NVIDIA's recipes set it up: `ub_tp_comm_overlap: true`, so that
# Transformer Engine sends what tensor parallelism has to send piece by piece beside its products.
# It does so inside of a node only (denera in NVIDIA/TransformerEngine#1071, 2024).
MEGATRON_CORE = replace(MODERN, name="Megatron-Core", hides_tensor=True, attention=_CUDNN_ATTENTION)
# PyTorch's pipelines are cut between any two layers. DeepEP forwards tokens inside of a node (its
# README). Attention is Transformer Engine's.
NEMO_AUTOMODEL = replace(
    MODERN,
    name="NeMo AutoModel",
    uneven_stages=True,
    once_per_node=True,
    attention=_CUDNN_ATTENTION,
)
# Of an H100, the best product in 8 bits measured against the best in 16 (Bekman, as in hardware.py)
EIGHT_BITS = 1402.6 / 794.5
# Products in 8 bits, tokens that go to each node once, and travel behind the other half of a
# two-way pipeline (DeepSeek-AI 2024, sections 3.2 and 3.3)
DEEPSEEK_V3 = replace(
    MODERN,
    name="DeepSeek's program",
    uneven_stages=True,
    once_per_node=True,
    hides_experts=True,
    products=EIGHT_BITS,
)
