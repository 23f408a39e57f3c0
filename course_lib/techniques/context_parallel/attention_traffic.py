"""How many bytes a rank sends for one layer of attention: (forward, backward).

With equal parts of T/n tokens, e bytes per element, and g per element of the gradients of keys and
values (4 where e is 2, for they are summed in float32):

                forward                             backward
    ring        (n-1)/n 2 B K T D e                 the same + (n-1)/n 2 B K T D g
    all-gather  the same                            the same
    Ulysses     (n-1)/n B T/n D (2 H + 2 K) e       the same

The ring and the all-gather send no less when there are more ranks, Ulysses does. With grouped
queries it may take many: for the 128 and 8 heads of Llama 3 405B, over 16 ranks and in bf16, of
(n-1)/n T D e bytes a ring sends 16 forward and 48 backward, and Ulysses 18 and 18.

The functions are exact for parts of unequal size, too.
"""

from .split import TokenSplit


def ring_bytes(
    split: TokenSplit,
    rank: int,
    batch: int,
    kv_heads: int,
    head_size: int,
    element: int,
    gradient_element: int | None = None,
) -> tuple[int, int]:
    """Forward all blocks leave this rank but the one that ends here, that of its right neighbour.

    Backward these again, and the sums for all others' keys.
    """
    if split.ranks == 1:
        return 0, 0
    token = 2 * batch * kv_heads * head_size  # elements
    keys = token * element * (split.tokens - split.size((rank + 1) % split.ranks))
    sums = token * (gradient_element or max(element, 4)) * (split.tokens - split.size(rank))
    return keys, keys + sums


def all_gather_bytes(
    split: TokenSplit,
    rank: int,
    batch: int,
    kv_heads: int,
    head_size: int,
    element: int,
    gradient_element: int | None = None,
) -> tuple[int, int]:
    """Every rank sends as much as the largest."""
    padded = (split.ranks - 1) * max(split.sizes) * 2 * batch * kv_heads * head_size  # elements
    gather = padded * element
    return gather, gather + padded * (gradient_element or max(element, 4))


def ulysses_bytes(
    split: TokenSplit,
    rank: int,
    batch: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    element: int,
) -> tuple[int, int]:
    """Its tokens of the others' heads leave a rank, and their tokens of its own."""
    n, own = split.ranks, split.size(rank)
    whole = heads + 2 * max(kv_heads, n)  # with repeated heads: of q, k and v
    head = batch * head_size * element
    out, back = (n - 1) * own, split.tokens - own  # tokens
    forward = head * (out * whole + back * heads) // n
    return forward, head * (out * heads + back * whole) // n
