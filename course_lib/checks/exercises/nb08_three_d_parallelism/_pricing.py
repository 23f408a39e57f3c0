"""What a plan costs, by the formulas of lessons 00 to 08, and what it would without one of them.

Enough to rank plans as the library's planner does; it leaves out kernels, latencies, the optimizer.
"""

from typing import Any

Plain = dict[str, Any]


def held(model: Plain, way: Plain, wrong: str = "") -> float:
    """Bytes on the device that holds most; `wrong` names a mistake of `MEMORY`."""
    t, p, d = way["tensor"], way["pipeline"], way["data"]
    own = model["parameters"] / (1 if wrong == "whole" else t * p)
    shares = [d if way["zero"] >= stage and wrong != "unsharded" else 1 for stage in (3, 2, 1)]
    sizes = (2, 2, 0 if wrong == "adam" else 12)
    states = own * sum(nbytes / share for nbytes, share in zip(sizes, shares, strict=True))
    if wrong == "activations":
        return states
    tokens = way["micro_batch"] * model["seq"]
    layer = (34 if wrong == "undivided" else 34 / t) * tokens * model["hidden"]
    kept = layer
    if way["recompute"] and wrong != "kept":
        kept = 2 * tokens * model["hidden"]
    flying = way["microbatches"] if wrong == "gpipe" else min(p, way["microbatches"])
    return states + kept * model["layers"] / p * (1 if wrong == "one" else flying)


MEMORY = {
    "activations": "activations are left out: a layer keeps 34sbh bytes of each microbatch, over t",
    "adam": "Adam's 12 bytes per parameter are left out",
    "whole": "the tensor and the pipeline axis divide the parameters, and that is left out",
    "unsharded": "ZeRO shares states among the replicas, and that is left out",
    "undivided": "the tensor axis divides a layer's activations, and that is left out",
    "kept": "with recomputation a layer keeps only its input, 2sbh bytes: that is left out",
    "gpipe": "1F1B has at most p microbatches in flight, not all of them",
    "one": "1F1B has up to p microbatches in flight, not one",
}


def seconds(model: Plain, cluster: Plain, way: Plain, wrong: str = "") -> float:
    """Of a step; `wrong` names a mistake of `TIME`."""
    t, p, m = way["tensor"], way["pipeline"], way["microbatches"]
    own = model["parameters"] / (t * p)
    tokens = way["micro_batch"] * model["seq"]
    again = way["recompute"] and wrong != "again"
    compute = (8 if again else 6) * own * tokens / cluster["flops"]
    layers = model["layers"] / p
    reduced = 2 * (t - 1) / t * 2 * tokens * model["hidden"] / cluster["inside"]
    talk = 0 if wrong == "tensor" else (6 if again else 4) * layers * reduced
    passes = m if wrong == "bubble" else m + p - 1
    return passes * (compute + talk) + _data(cluster, way, own, compute, wrong)


def _data(cluster: Plain, way: Plain, own: float, compute: float, wrong: str) -> float:
    t, d, m = way["tensor"], way["data"], way["microbatches"]
    if wrong == "data" or d == 1:
        return 0
    bandwidth = cluster["inside"]
    if d * t > cluster["per_node"]:
        adapters = min(cluster["rings"], max(1, cluster["per_node"] // t))
        adapters = 1 if wrong == "adapter" else adapters
        bandwidth = cluster["between"] * adapters
    ring = (d - 1) / d * 2 * own / bandwidth
    if way["zero"] < 3 or wrong == "free":
        return 2 * ring
    if wrong == "once":
        return 3 * ring
    if wrong == "hidden":
        return m * max(0, 3 * ring - compute)
    if wrong == "shown":
        return m * 3 * ring
    return m * (ring + max(0, 2 * ring - compute))


TIME = {
    "bubble": "the bubble is left out: filling a pipeline takes p - 1 more microbatches",
    "tensor": "tensor parallelism's all-reduces are left out, four per layer and microbatch",
    "data": "what data parallelism sends hardly counts here. Gradients are reduced once per step, "
    "with ZeRO-3 once per microbatch, and hide behind nothing",
    "free": "ZeRO-3 sends more than plain data parallelism: it gathers in forward and backward",
    "once": "ZeRO-3 gathers and reduces with every microbatch, not once per step",
    "hidden": "gradients that are reduced hide behind nothing; only what ZeRO-3 gathers does",
    "shown": "what ZeRO-3 gathers hides behind the computation of its microbatch",
    "adapter": "a group with several ranks on a node has as many adapters, `rings` at most",
    "again": "a recomputation runs the forward again: 8 operations per parameter and token, not 6",
}
