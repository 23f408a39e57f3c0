"""Sizes that every schedule refuses."""


def check_sizes(p: int, m: int) -> None:
    """Raise `ValueError` unless there are a rank and a microbatch."""
    if p < 1 or m < 1:
        raise ValueError(f"p = {p} ranks and m = {m} microbatches must both be at least 1")
