"""What a cluster would do: clusters, costs, memory, schedules played and recordings replayed.

In the order in which to read, each line by itself:

    machines       hardware, cluster
    collectives    costs, collectives_on_cluster; data_parallel and convnets for a step that
                   overlaps
    models         transformer, mixture_of_experts, models
    memory         memory_formulas, offload; framework_memory_estimates for what DeepSpeed and
                   Megatron print
    schedules      engine, pipeline; blocking_sends for sends that wait
    decisions      memory_choices, pipeline_choices: all ways to run a job, and what each costs
    recordings     rank_programs, recorded_transfers, replaying
    planning       planner, mesh_search, plan_remedies, plans
      what it adds up   planner_assumptions, frameworks; plan_stages, plan_memory, plan_traffic,
                        layer_traffic, plan_time
      is it right?      published, accuracy; published_run, published_megatron,
                        published_megatron_core, published_dense, published_experts
      your own          planner_contest, planner_scores, rules_of_thumb
"""

from course_lib.observe.timeline import COMMUNICATION, COMPUTE, Span, Timeline, Track
from course_lib.techniques.mesh import Mesh

from . import costs
from .blocking_sends import Hang, simulate_blocking
from .cluster import CLUSTERS, Cluster, dgx_a100, dgx_a100_40gb, dgx_h100, dgx_h200, v100_32gb
from .collectives_on_cluster import ALGORITHMS, collective_seconds, hierarchical_all_reduce
from .frameworks import (
    DEEPSPEED_2021,
    MEGATRON_2021,
    MEGATRON_2022,
    MEGATRON_CORE,
    MODERN,
    NEMO_AUTOMODEL,
)
from .hardware import DEVICES, LINKS, Device, Link, fit_link
from .memory_formulas import (
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
from .mixture_of_experts import Mixture
from .models import MODELS
from .offload import Offloaded, offload_optimizer
from .pipeline import simulate
from .planner import plan
from .planner_assumptions import Software
from .plans import Plan, Plans
from .replaying import replay
from .transformer import Transformer, training_days

__all__ = [
    "ALGORITHMS",
    "CLUSTERS",
    "COMMUNICATION",
    "COMPUTE",
    "DEEPSPEED_2021",
    "DEVICES",
    "FP32_ADAM",
    "LINKS",
    "MEGATRON_2021",
    "MEGATRON_2022",
    "MEGATRON_BF16",
    "MEGATRON_CORE",
    "MEGATRON_FP16",
    "MIXED_ADAM",
    "MODELS",
    "MODERN",
    "NEMO_AUTOMODEL",
    "Cluster",
    "Device",
    "Hang",
    "Link",
    "Mesh",
    "Mixture",
    "Offloaded",
    "Plan",
    "Plans",
    "Software",
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
    "offload_optimizer",
    "plan",
    "replay",
    "simulate",
    "simulate_blocking",
    "step_traffic_elements",
    "training_days",
    "v100_32gb",
]
