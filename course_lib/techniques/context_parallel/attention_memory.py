"""What a rank holds at the peak of one layer of attention, forward and backward, in bytes.

Counted are q, k and v, the output, and the gradients of all of these, which a layer is given or
makes, and what it needs besides. With several ranks and a balanced split, in units of B T/n D
elements (one head of a rank's tokens):

                 of queries    keys and values    sums of gradients    from one block of keys
    ring         4 H           2 K + 4 K          6 K                  5/2 K
    all-gather   4 H           2 K + 2 n K        2 n K                3 K

The ring holds keys and values that are here and that come, and sums that stay, leave and come.
Under zigzag a block has half of the tokens of either queries or keys. Nothing grows with n.

The all-gather holds keys and values of all ranks, and a sum for each. A block is as large as its
own, and gradients of keys are summed over the query heads that share them.

Ulysses has all tokens of H/n heads, and their exchange needs three copies: what is rearranged, what
arrives, and what that is rearranged to. K' heads of keys and values travel, K or n of them. So at
most 6 H + 2 K + 6 K', or 7 H + 2 K + 4 K' in the middle of attention's own backward pass.
"""


def ring_memory(
    head: int, heads: int, kv_heads: int, element: int, gradient_element: int | None = None
) -> float:
    """head: elements of one head of a rank's tokens, B T/n D.

    element, gradient_element: their bytes, and those of sums of gradients, at least 4.
    """
    sums = gradient_element or max(element, 4)
    held = _queries(heads, element, sums) + (2 + 4) * kv_heads * element + 6 * kv_heads * sums
    return head * (held + 5 / 2 * kv_heads * element + _shared(heads, kv_heads, element, sums))


def all_gather_memory(
    ranks: int,
    head: int,
    heads: int,
    kv_heads: int,
    element: int,
    gradient_element: int | None = None,
) -> float:
    """As `ring_memory`."""
    sums = gradient_element or max(element, 4)
    keys = (2 + 2 * ranks) * kv_heads * element + 2 * ranks * kv_heads * sums
    held = _queries(heads, element, sums) + keys
    return head * (held + 3 * kv_heads * element + _shared(heads, kv_heads, element, sums))


def ulysses_memory(ranks: int, head: int, heads: int, kv_heads: int, element: int) -> float:
    """As `ring_memory`; nothing is summed up, so all elements are as large."""
    travelling = max(kv_heads, ranks)
    exchange = 6 * heads + 2 * kv_heads + 6 * travelling
    attention = 7 * heads + 2 * kv_heads + 4 * travelling
    return head * element * max(exchange, attention)


def _queries(heads: int, element: int, sums: int) -> int:
    """q, the output and its gradient, and the gradient of q."""
    return heads * (3 * element + sums)


def _shared(heads: int, kv_heads: int, element: int, sums: int) -> int:
    """Gradients of a block's keys and values, where they are summed up or made larger first."""
    return 2 * kv_heads * sums if heads > kv_heads or sums > element else 0
