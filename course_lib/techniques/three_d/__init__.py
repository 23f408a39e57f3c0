"""Data, tensor and pipeline parallelism at once, with ZeRO along the data axis.

    training    ThreeD: one rank's part of a GPT in training

Needs of its neighbours: mesh, schedules, tensor_parallel, pipeline, zero, and what these need,
collectives and make_optimizer.
"""

from .training import ThreeD, check

__all__ = ["ThreeD", "check"]
