"""Rotary positions: queries and keys are turned by an angle that grows with the position.

Pair i of D/2 turns by position * base^(-2 i / D), so the product of a query and a key depends on
their distance only. A rank turns its tokens by their positions in the sequence, `split.positions`,
before keys travel; its own numbering from 0 would be right for rank 0 of a plain split only.

Su et al., "RoFormer", arXiv 2104.09864 (2021), section 3.2.2. As in GPT-NeoX and Llama's
checkpoints for Hugging Face, the pairs are elements i and i + D/2.
"""

import torch


def rotary(x: torch.Tensor, positions: torch.Tensor, base: float = 10_000.0) -> torch.Tensor:
    """x (B, heads, T_r, D) turned by its positions (T_r,), or (B, T_r); in the dtype of `x`.

    Raises `ValueError` for an odd D, and for another number of positions than of tokens.
    """
    tokens, size = x.shape[-2:]
    if size % 2:
        raise ValueError(f"a head size of {size} does not divide into pairs")
    if positions.shape[-1] != tokens:
        raise ValueError(f"{positions.shape[-1]} positions, for {tokens} tokens")
    pairs = torch.arange(size // 2, device=x.device, dtype=torch.float64)
    angles = positions.unsqueeze(-1) * base ** (-2 * pairs / size)  # (T_r, D/2) or (B, T_r, D/2)
    if angles.dim() == 3:
        angles = angles.unsqueeze(1)  # the same for all heads
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
