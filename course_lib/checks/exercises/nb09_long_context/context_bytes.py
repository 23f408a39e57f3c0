"""What attention over several ranks sends, three ways.

context_bytes(tokens, n, heads, kv_heads, head_size, element_size) -> (ring, all_gather, ulysses)
    Bytes that one rank sends in the forward pass of one attention layer, for one sequence of so
    many tokens, as many on each of n ranks. kv_heads are those of keys and values (grouped-query
    attention); n divides tokens, heads and kv_heads.
"""

import random
from typing import Any

from course_lib.checks import byte_formulas, compare_tensors
from course_lib.checks.call_answer import plain, shown
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import numbers
from course_lib.text import counted

_WAYS = ("ring", "all_gather", "ulysses")


def _cases(rng: random.Random) -> list[Case]:
    sizes = [(24, 3, 6, 3, 8, 4), (131072, 8, 128, 8, 128, 2), (8, 1, 2, 2, 4, 4)]
    for _ in range(2):
        n = rng.randint(3, 7)
        kv_heads = n * rng.randint(1, 3)
        sizes.append((n * rng.randint(5, 99), n, kv_heads * rng.randint(2, 5), kv_heads, 64, 2))
    return [Case(1, _label(*size), {"size": size}) for size in sizes]


def _label(tokens: int, n: int, heads: int, kv_heads: int, *_: int) -> str:
    return f"{tokens} tokens over {counted(n, 'rank')}, {heads} heads, {kv_heads} of keys"


def _on_rank(answer: Any, case: Case) -> Any:
    return plain(answer(*case.data["size"]))


def _exact(
    tokens: int, n: int, heads: int, kv_heads: int, head_size: int, element_size: int
) -> tuple[float, float, float]:
    keys_and_values = 2 * tokens // n * kv_heads * head_size * element_size
    outgoing = 2 * tokens // n * (heads + kv_heads) * head_size * element_size * (n - 1) / n
    return (n - 1) * keys_and_values, (n - 1) * keys_and_values, outgoing


def _judge(case: Case, observation: Observation) -> Finding | None:
    answered = observation.values[0]
    got = numbers(answered, 3)
    if got is None:
        return Finding(
            "three numbers are expected, (ring, all_gather, ulysses)", got=shown(answered)
        )
    wanted = _exact(*case.data["size"])
    for way, mine, exact in zip(_WAYS, got, wanted, strict=True):
        causes = _causes(way, exact, *case.data["size"])
        finding = byte_formulas.differs(mine, exact, causes, _rule(way, case.data["size"][1]))
        if finding:
            return compare_tensors.titled(way, finding)
    return None


def _rule(way: str, n: int) -> str:
    if n == 1:
        return "one rank has nobody to send to"
    if way == "ulysses":
        return "(n - 1)/n of q, k, v and of the output go elsewhere, of T/n tokens each"
    return "n - 1 blocks go through every rank, each the keys and values of T/n tokens"


def _causes(
    way: str,
    want: float,
    tokens: int,
    n: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    element_size: int,
) -> list[tuple[float, str]]:
    if n == 1:
        return []
    head = 2 * tokens // n * head_size * element_size  # of a rank's tokens, twice
    block, share = head * kv_heads, (n - 1) / n
    causes = [
        (want / element_size, "these are elements: each has `element_size` bytes"),
        (want * n, "this is what all ranks send together: this asks for what each one sends"),
        (want * 3, "backward is in it: the forward pass is expected"),
    ]
    if way != "ulysses":
        causes += [
            (want / 2, "half of it: keys and values are two tensors"),
            (n * block, "n blocks: the last one that arrives is not handed on, so n - 1"),
            (want * 2, "twice of it: each block is passed on once, and only an all-reduce has a 2"),
            (block, "one block: every one but your own comes through you, n - 1 in all"),
            (want * heads / kv_heads, "keys and values have kv_heads heads, and not all heads"),
            (block * share, "a block is the tokens of one rank: T/n, and not T/n^2"),
            (n * block * (n - 1), "a block is the tokens of one rank, T/n, and not all T"),
        ]
        return causes
    causes += [
        (want / 2, "half of it: what goes to the heads' ranks has to come back"),
        (want / share, "(n - 1)/n is missing: the part of one's own heads stays"),
        (head * 2 * heads * share, "keys and values have kv_heads heads, and not all heads"),
        (
            head / 2 * (heads + 2 * kv_heads) * share,
            "q, k and v go out, and the output comes back: it is as large as q",
        ),
        (want * n, "each rank sends its own tokens, T/n, and not all T"),
        (
            want * n,
            "each rank sends (n - 1)/n of its own, not n - 1 times all of it: the others get "
            "different parts",
        ),
    ]
    return causes


EXERCISE = Exercise(
    module=__name__,
    signature="(tokens, n, heads, kv_heads, head_size, element_size)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        How large are keys and values of one rank? How many such blocks does a rank hand on in the
        ring? An all-gather by a ring does the same. And which four tensors does Ulysses exchange?
        """,
        """
        A block is 2 * tokens/n * kv_heads * head_size * element_size bytes, and n - 1 of them go
        through every rank. Ulysses sends (n - 1)/n of q and the output (heads) and of k and v
        (kv_heads), tokens/n of each.
        """,
        """
        block = 2 * tokens // n * kv_heads * head_size * element_size; ring = all_gather = (n - 1) *
        block; ulysses = (n - 1)/n * 2 * (heads + kv_heads) * tokens/n * head_size * element_size.
        """,
    ),
    passed="ring and all-gather send the same, and Ulysses less with every rank",
    contract=Contract(
        takes="whole numbers; n divides tokens, heads and kv_heads",
        gives="three numbers are returned",
        allowed=frozenset(),
    ),
)
