"""Planners that follow one rule: each gives a way to train its bytes, and a number to order it by.

They are asked as `planner_contest.py` says, and price what is the rule's first choice lowest.
Memory is counted by formulas, with a twentieth of it left free.
"""

_SPARE = 1.05


def all_data_parallel(model: dict, cluster: dict, way: dict) -> tuple[float, float]:
    """As many copies as fit, and no ZeRO."""
    return _SPARE * held(model, way), 1 / way["data"] + way["zero"]


def all_zero_3(model: dict, cluster: dict, way: dict) -> tuple[float, float]:
    """ZeRO-3 over all devices."""
    return _SPARE * held(model, way), 1 / way["data"] + 3 - way["zero"]


def megatrons_rule(model: dict, cluster: dict, way: dict) -> tuple[float, float]:
    """The fewest devices a replica that fit, tensor axis first (SC 2021, takeaways 1 and 2)."""
    replica = way["tensor"] * way["pipeline"]
    return _SPARE * held(model, way), replica + 1 / way["tensor"] + (way["zero"] == 3) * 10**6


def held(model: dict, way: dict) -> float:
    """Bytes on a device: model states, activations in flight, a layer at work, and the logits."""
    own = model["parameters"] / way["tensor"] / way["pipeline"]
    shares = [way["data"] if way["zero"] >= stage else 1 for stage in (3, 2, 1)]
    states = own * sum(nbytes / share for nbytes, share in zip((2, 2, 12), shares, strict=True))
    tokens = way["micro_batch"] * model["seq"]
    whole = 34 * tokens * model["hidden"] / way["tensor"]
    kept = 2 * tokens * model["hidden"] if way["recompute"] else whole
    flying = min(way["pipeline"], way["microbatches"])
    logits = 4 * tokens * (model["hidden"] + model["vocab"]) / way["tensor"]
    at_work = whole if way["recompute"] else 0
    return states + kept * model["layers"] / way["pipeline"] * flying + at_work + logits
