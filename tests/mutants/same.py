"""Changes that leave an answer as right as it was: mutants that may pass, each with the reason.

By exercise, a change (as `make mutants` prints it) -> why it is the same answer.
"""

_RECEIVED = "a tensor that has just been received has no graph to be cut from"

_BACKWARDS = "a negative index counts from the end, as a rank of a ring does"
_APART = "no position is on two ranks"
_STABLE = "torch sorts stably on a CPU, asked or not"
_AS_MANY = "there are as many parts as experts"
_NOBODY_ELSE = "only the rank before sends anything"

SAME: dict[str, dict[str, str]] = {
    "causal_work": {
        "return [[int((positions[r][:, None] >= positions[(r - s) % n]).sum()) for s in range(n)] "
        "for r in range(n)] -> return [[int((positions[r][:, None] >= positions[r - s]).sum()) "
        "for s in range(n)] for r in range(n)]": _BACKWARDS,
    },
    "dispatch_tokens": {
        f"{sort}.argsort(stable=True) -> {sort}.argsort({without})": _STABLE
        for sort in ("order = experts.flatten()", "again = whose")
        for without in ("", "stable=False")
    },
    "exchange_with_gradient": {"return output -> return output.detach()": _RECEIVED},
    "expert_layer": {
        "outputs = [expert(part) for expert, part in zip(local, parts, strict=True)] -> outputs = "
        f"[expert(part) for expert, part in zip(local, parts{without})]": _AS_MANY
        for without in ("", ", strict=False")
    },
    "packed_ring_attention": {
        "visible = visible_of((rank - step) % n) -> visible = visible_of(rank - step)": _BACKWARDS,
        "return out -> return out.detach()": "what comes in has no graph, and none is asked for",
    },
    "pass_on": {
        "dist.recv(tensor, src=(rank - 1) % n) -> dist.recv(tensor)": _NOBODY_ELSE,
    },
    "ring_attention": {
        "visible = mine[:, None] >= positions[(rank - step) % n] -> "
        "visible = mine[:, None] >= positions[rank - step]": _BACKWARDS,
        "visible = mine[:, None] >= positions[(rank - step) % n] -> "
        "visible = mine[:, None] > positions[(rank - step) % n]": _APART,
    },
    "ring_attention_backward": {
        "visible = positions[rank][:, None] >= positions[(rank - step) % n] -> "
        "visible = positions[rank][:, None] >= positions[rank - step]": _BACKWARDS,
    },
    "run_schedule": {"return tensor -> return tensor.detach()": _RECEIVED},
}
