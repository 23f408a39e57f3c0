"""The ring all-reduce by ranks and by size."""

from collections.abc import Iterator

import torch

from course_lib.ranks import collect
from course_lib.techniques.collectives import ring_all_reduce
from tests.bench._growth import growing, middle, why
from tests.bench.measurement import Measurement, Row, seconds_of

_ROUNDS, _WARM_UP = 9, 2
_MB = 4
_SIZES = [2**power for power in range(16, 27)]  # 64 KB to 64 MB


def _on_each_rank(numel: int) -> float:
    """Milliseconds of one call."""
    tensor = torch.zeros(numel)
    calls = max(1, min(32, 2**23 // numel))  # in a row, so that ranks out of step do not matter

    def repeat() -> None:
        for _ in range(calls):
            ring_all_reduce(tensor)

    return middle([seconds_of(repeat) / calls for _ in range(_WARM_UP + _ROUNDS)][_WARM_UP:])


def _call(ranks: int, size: int) -> dict[str, float]:
    """size: bytes of the tensor. The ranks share the machine, so what they send together counts."""
    took = max(collect(_on_each_rank, ranks, (size // 4,), observe=False, timeout=120))
    return {"ms": took, "GB/s together": 2 * (ranks - 1) * size / took / 1e6}


def _by_ranks() -> Iterator[tuple[str, dict[str, float]]]:
    for ranks in (2, 4, 8):
        yield f"{ranks}", _call(ranks, _MB << 20)


def _by_size() -> Iterator[tuple[str, dict[str, float]]]:
    for size in _SIZES:
        yield f"{size / 2**20:.4g}", _call(2, size)


def _of_ranks() -> list[Measurement]:
    lines = growing(_by_ranks())
    rates = [line.values["GB/s together"] for line in lines]
    reason = (
        "all ranks together send 2 (n - 1) tensors through the same cores and memory, at "
        f"{min(rates):.2f} to {max(rates):.2f} GB/s; on a cluster each has a link of its own"
    )
    return [*lines, why(reason)]


def _of_size() -> list[Measurement]:
    lines = growing(_by_size())
    small, large = lines[0].values["ms"], lines[-1].values["ms"]
    reason = (
        f"{_SIZES[-1] // _SIZES[0]} times the bytes take {large / small:.0f} times as long: a "
        f"small tensor has the fixed cost of a call, at most {small:.2f} ms, a large one its bytes"
    )
    return [*lines, why(reason)]


ROWS = [
    Row("growth-ring-ranks", f"ring_all_reduce of {_MB} MB by ranks", _of_ranks),
    Row("growth-ring-size", "ring_all_reduce on 2 ranks by MB", _of_size),
]
