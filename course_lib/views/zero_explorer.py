"""Model states by stage of ZeRO against a device's memory: model, devices, precision."""

import functools
from collections.abc import Mapping

from course_lib.observe import Memory
from course_lib.simulate.hardware import DEVICES
from course_lib.simulate.memory_formulas import (
    FP32_ADAM,
    MEGATRON_BF16,
    MEGATRON_FP16,
    MIXED_ADAM,
    StateBytes,
    model_state_bytes,
)

from .memory_bars import memory_bars
from .units import count_text
from .view import View
from .widgets import Control, Explorer, explore
from .zero_step import SIZES, STAGES

YOURS = "yours"
PRECISIONS = {
    "mixed, 2 + 2 + 12": MIXED_ADAM,
    "fp32, 4 + 4 + 8": FP32_ADAM,
    "bf16, fp32 gradients, 2 + 4 + 12": MEGATRON_BF16,
    "fp16, two gradients, 2 + 2 + 16": MEGATRON_FP16,
}
STATES = ("parameters", "gradients", "optimizer")


def zero_memory(
    model: str = "7.5B",
    devices: int = 64,
    precision: str = "mixed, 2 + 2 + 12",
    device: str = "V100 SXM2 32 GB",
    own: Mapping[str, Memory] | None = None,
    own_parameters: int = 0,
) -> View:
    """Bars for data parallelism and the stages of ZeRO, and the device's memory as a line.

    model            a name in `zero_step.SIZES`, or "yours": `own_parameters` parameters, with what
                     was measured in the runs `own` below the formula's bars
    Bytes are only those of parameters, gradients and optimizer: activations come on top.
    """
    parameters = own_parameters if model == YOURS else SIZES[model]
    states, capacity = PRECISIONS[precision], DEVICES[device].memory
    bars = {name: _parts(parameters, devices, k, states) for k, name in enumerate(STAGES)}
    fitting = [name for name, parts in bars.items() if sum(parts.values()) <= capacity]
    if model == YOURS:
        for name, memory in (own or {}).items():
            most = max(memory.highest, key=lambda held: sum(held[part] for part in STATES))
            bars[f"measured: {name}"] = {part: most[part] for part in STATES}
        return memory_bars(
            bars, title=f"your {count_text(parameters)} parameters on {devices} devices"
        )
    found = f"{fitting[0]} is the first that fits" if fitting else "nothing fits"
    title = f"{model} on {devices} devices, {precision} bytes per parameter: {found}"
    return memory_bars(bars, capacity, title)


def zero_explorer(own: Mapping[str, Memory] | None = None, own_parameters: int = 0) -> Explorer:
    """All of `zero_memory` under sliders.

    own             runs by name, such as {"stage 1": results.trace.memory()}, offered as the model
                    "yours"; its states appear beside the formula's
    own_parameters  how many parameters that model has
    """
    models = [*SIZES, *([YOURS] if own_parameters else [])]
    return explore(
        functools.partial(zero_memory, own=own, own_parameters=own_parameters),
        height=240,
        model=models,
        devices=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
        precision=Control(list(PRECISIONS), "precision (bytes per parameter)"),
        device=Control(list(DEVICES), "kind of device"),
    )


def _parts(parameters: float, devices: int, stage: int, states: StateBytes) -> dict[str, float]:
    alone = {
        "parameters": StateBytes(states.parameter, 0, 0),
        "gradients": StateBytes(0, states.gradient, 0),
        "optimizer": StateBytes(0, 0, states.optimizer),
    }
    return {
        name: model_state_bytes(parameters, devices, stage, part) for name, part in alone.items()
    }
