"""Model states on the host: what stays on the device, what the host holds, what crosses the bus.

Ren et al., "ZeRO-Offload", USENIX ATC 2021: 16-bit parameters and both passes stay on the device;
16-bit gradients, fp32 states and the optimizer's step go to the host. Each step gradients cross the
bus downwards and parameters upwards, 2 + 2 bytes per parameter, the least of any such cut.
"""

from dataclasses import dataclass

from .memory_formulas import MIXED_ADAM, StateBytes, model_state_bytes


@dataclass(frozen=True)
class Offloaded:
    """Bytes: on one device, on the host for that device, and across its bus in a step."""

    device: float
    host: float
    bus: float

    def bus_seconds(self, bandwidth: float) -> float:
        """At `bandwidth` bytes per second in each direction, one direction after the other."""
        if not bandwidth > 0:
            raise ValueError(f"bandwidth = {bandwidth} must be more than 0")
        return self.bus / bandwidth


def offload_optimizer(
    parameters: float, world_size: int = 1, states: StateBytes = MIXED_ADAM
) -> Offloaded:
    """ZeRO-Offload on `world_size` devices: each hands its share of gradients and states down.

    One device holds 2 bytes per parameter instead of 16 and sends 4 per step. More devices divide
    the host's part and the bus's; each still has all parameters, gathered after the update.
    """
    kept = model_state_bytes(parameters, world_size, 0, StateBytes(states.parameter, 0, 0))
    moved = StateBytes(0, states.gradient, states.optimizer)
    host = model_state_bytes(parameters, world_size, 2, moved)
    bus = (states.gradient + states.parameter) * parameters / world_size
    return Offloaded(kept, host, bus)
