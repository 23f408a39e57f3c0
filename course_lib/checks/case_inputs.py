"""Tensors for the cases: some that a person can add up, some that no wrong answer survives."""

import random

import torch


def by_powers_of_ten(world_size: int, numel: int) -> list[torch.Tensor]:
    """Rank r holds (1, 2, 3, ...) x 10^r, so each digit of a sum tells whose part is in it.

    int64; at most nine elements, so that no digit carries over. On three ranks the sum is
    (111, 222, ...), and 101 lacks rank 1's part.
    """
    if not 1 <= numel <= 9:
        raise ValueError(f"powers of ten are legible with 1 to 9 elements, not {numel}")
    return [torch.arange(1, numel + 1) * 10**rank for rank in range(world_size)]


def spread(
    rng: random.Random,
    world_size: int,
    shape: int | tuple[int, ...],
    dtype: torch.dtype = torch.float32,
) -> list[torch.Tensor]:
    """A random tensor for each rank: magnitudes from 1e-6 to 1e6, or whole numbers to 10^17.

    They are more than float16 can hold, but no sum of them is more than bfloat16 can. Whole numbers
    have more digits than a float of their size; those of 4 bytes go to 10^8.
    """
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    shape = (shape,) if isinstance(shape, int) else shape
    tensors = []
    for _ in range(world_size):
        if dtype.is_floating_point:
            sign = torch.randint(0, 2, shape, generator=generator) * 2.0 - 1
            power = torch.rand(shape, generator=generator, dtype=torch.float64) * 12 - 6
            tensors.append((sign * 10**power).to(dtype))
        else:
            most = 10**17 if dtype.itemsize == 8 else 10**8
            tensors.append(torch.randint(-most, most, shape, generator=generator, dtype=dtype))
    return tensors


def normal(
    rng: random.Random, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64
) -> list[torch.Tensor]:
    """A tensor of each shape from the standard normal distribution."""
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
