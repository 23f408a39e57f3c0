"""Models by name, with the sizes that their papers and configurations give.

A `Transformer` has one kind of layer and an output layer that shares the embedding. Its layers have
12 h^2 parameters unless `inner` is given, and models with gated or grouped layers come out near
their own count: LLaMA 65B and Llama 3 405B within 1 %, Llama 2 70B within 6 %. A `Mixture` has
experts in all layers: DeepSeek-V3, whose first three have none, comes out 3 % larger than it is,
Kimi K2 with one such 1 %.

Narayanan et al., SC 2021, Tables 1 and 2; Radford et al. 2019; Touvron et al. 2023 (LLaMA, Llama
2); Llama Team 2024; NVIDIA, dgxc-benchmarking (Nemotron-4); BigScience 2022, Table 3; MosaicML,
llm-foundry, scripts/train/yamls/pretrain; Jiang et al. 2024 (Mixtral); DeepSeek-AI 2024; Qwen Team
2025; Kimi Team 2025.
"""

from .mixture_of_experts import Mixture
from .transformer import Transformer

_MEGATRON = {  # billions of parameters: layers, hidden, heads
    "1.7B": (24, 2304, 24),
    "3.6B": (30, 3072, 32),
    "7.5B": (36, 4096, 32),
    "18.4B": (40, 6144, 48),
    "22B": (48, 6144, 64),
    "39.1B": (48, 8192, 64),
    "76.1B": (60, 10240, 80),
    "145.6B": (80, 12288, 96),
    "310.1B": (96, 16384, 128),
    "1T": (128, 25600, 160),
}
_LLAMA_2 = {
    "Llama 2 7B": (32, 4096, 32),
    "Llama 2 13B": (40, 5120, 40),
    "Llama 2 70B": (80, 8192, 64),
}
_MPT = {
    "MPT 1B": (24, 2048, 16),
    "MPT 3B": (32, 2560, 20),
    "MPT 7B": (32, 4096, 32),
    "MPT 13B": (40, 5120, 40),
    "MPT 30B": (48, 7168, 56),
    "MPT 70B": (80, 8192, 64),
}
_GROUPED = {
    "Llama 3 8B": Transformer(
        *(32, 4096, 32), seq=8192, vocab=128256, kv_heads=8, inner=14336, matrices=3
    ),
    "Llama 3 70B": Transformer(
        *(80, 8192, 64), seq=8192, vocab=128256, kv_heads=8, inner=28672, matrices=3
    ),
    "Nemotron-4 15B": Transformer(*(32, 6144, 48), seq=4096, vocab=256000, kv_heads=8, inner=24576),
    "Nemotron-4 340B": Transformer(
        *(96, 18432, 96), seq=4096, vocab=256000, kv_heads=8, inner=73728
    ),
}
# Latent attention: queries by way of 1536 numbers, keys and values of 512, and 64 for positions,
# to heads of 128 + 64 for QK^T and 128 for values, 160 in the mean
_LATENT_HEAD = 192 * 1536 + 256 * 512 + 128 * 7168
_LATENT_SHARED = 7168 * (1536 + 512 + 64)
_MIXTURES = {
    "Mixtral 8x7B": Mixture(
        *(32, 4096, 32), seq=4096, vocab=32000, kv_heads=8, experts=8, chosen=2, inner=14336,
        matrices=3,
    ),
    "Qwen3 30B-A3B": Mixture(
        *(48, 2048, 32), seq=4096, vocab=151936, kv_heads=4, experts=128, chosen=8, inner=768,
        matrices=3, head_size=128,
    ),
    "DeepSeek-V3": Mixture(
        *(61, 7168, 128), seq=4096, vocab=129280, experts=256, chosen=8, inner=2048, matrices=3,
        shared=2048, attention=_LATENT_SHARED + 128 * _LATENT_HEAD, head_size=160, nodes=4,
    ),
    "Kimi K2": Mixture(
        *(61, 7168, 64), seq=4096, vocab=163840, experts=384, chosen=8, inner=2048, matrices=3,
        shared=2048, attention=_LATENT_SHARED + 64 * _LATENT_HEAD, head_size=160,
    ),
}  # fmt: skip
MODELS: dict[str, Transformer] = {
    "GPT-2 1.5B": Transformer(48, 1600, 25, seq=1024, vocab=50257),
    **{name: Transformer(*sizes, seq=2048, vocab=51200) for name, sizes in _MEGATRON.items()},
    "GPT-3 175B": Transformer(96, 12288, 96, seq=2048, vocab=51200),
    "MT-NLG 530B": Transformer(105, 20480, 128, seq=2048, vocab=51200),
    "BLOOM 176B": Transformer(70, 14336, 112, seq=2048, vocab=250880),
    "LLaMA 65B": Transformer(80, 8192, 64, seq=2048, vocab=32000),
    **{name: Transformer(*sizes, seq=4096, vocab=32000) for name, sizes in _LLAMA_2.items()},
    "Llama 3 405B": Transformer(126, 16384, 128, seq=8192, vocab=128256, kv_heads=8),
    **_GROUPED,
    **{name: Transformer(*sizes, seq=2048, vocab=50368) for name, sizes in _MPT.items()},
    **_MIXTURES,
}
