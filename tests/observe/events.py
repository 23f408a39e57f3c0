"""Recorded events, made up for tests."""

from course_lib.observe import CommEvent


def event(rank: int, n: int, op: str, *, world: int = 2, **fields) -> CommEvent:
    """Call `n` of `rank` on a group of all `world` ranks: four float32 unless `fields` differ."""
    return CommEvent(
        **{
            "rank": rank,
            "n": n,
            "op": op,
            "group": "0",
            "ranks": tuple(range(world)),
            "peer": None,
            "tag": 0,
            "nbytes": 16,
            "shapes": ((4,),),
            "dtype": "float32",
            "reduce_op": None,
            "blocking": True,
            "native": False,
            "issued": float(n),
        }
        | fields
    )
