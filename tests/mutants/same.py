"""Changes that leave an answer as right as it was: mutants that may pass, each with the reason.

By exercise, a change (as `make mutants` prints it) -> why it is the same answer.
"""

_RECEIVED = "a tensor that has just been received has no graph to be cut from"

SAME: dict[str, dict[str, str]] = {
    "run_schedule": {"return tensor -> return tensor.detach()": _RECEIVED},
}
