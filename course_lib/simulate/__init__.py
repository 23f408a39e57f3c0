"""What a cluster would do: clusters, costs, memory, schedules played and recordings replayed."""

from ..observe.timeline import COMMUNICATION, COMPUTE, Span, Timeline, Track
from . import costs
from .blocking import Hang, simulate_blocking
from .cluster import CLUSTERS, Cluster, dgx_a100, dgx_a100_40gb, dgx_h100, dgx_h200, v100_32gb
from .collectives import ALGORITHMS, collective_seconds, hierarchical_all_reduce
from .hardware import DEVICES, LINKS, Device, Link, fit_link
from .memory import (
    FP32_ADAM,
    MEGATRON_BF16,
    MEGATRON_FP16,
    MIXED_ADAM,
    StateBytes,
    activation_bytes,
    layer_activation_bytes,
    model_state_bytes,
    step_traffic_elements,
)
from .pipeline import simulate
from .replaying import replay
from .transformer import Transformer

__all__ = [
    "ALGORITHMS",
    "CLUSTERS",
    "COMMUNICATION",
    "COMPUTE",
    "DEVICES",
    "FP32_ADAM",
    "LINKS",
    "MEGATRON_BF16",
    "MEGATRON_FP16",
    "MIXED_ADAM",
    "Cluster",
    "Device",
    "Hang",
    "Link",
    "Span",
    "StateBytes",
    "Timeline",
    "Track",
    "Transformer",
    "activation_bytes",
    "collective_seconds",
    "costs",
    "dgx_a100",
    "dgx_a100_40gb",
    "dgx_h100",
    "dgx_h200",
    "fit_link",
    "hierarchical_all_reduce",
    "layer_activation_bytes",
    "model_state_bytes",
    "replay",
    "simulate",
    "simulate_blocking",
    "step_traffic_elements",
    "v100_32gb",
]
