"""What a device must hold to train: the model's states, and activations for the backward pass.

States follow Rajbhandari et al., "ZeRO", SC 2020; activations follow Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", 2022. All results are bytes; both papers
write GB for 10^9 (DeepSpeed's and Megatron's own printouts divide by 2^30 and 2^20).
"""

from dataclasses import dataclass
from typing import Literal

from .transformer import Transformer

Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True)
class StateBytes:
    """Bytes per parameter, as parameter, as gradient, and in the optimizer.

    `optimizer` includes the fp32 copy of the parameter, where the parameter itself is shorter.
    """

    parameter: float
    gradient: float
    optimizer: float

    def __post_init__(self) -> None:
        for field in ("parameter", "gradient", "optimizer"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field} = {getattr(self, field)} bytes, at least 0")

    @property
    def total(self) -> float:
        """Bytes per parameter on one device without sharding."""
        return self.parameter + self.gradient + self.optimizer


MIXED_ADAM = StateBytes(2, 2, 12)  # ZeRO, section 3.1: K = 12
FP32_ADAM = StateBytes(4, 4, 8)  # no copy to keep: 16 as well
MEGATRON_BF16 = StateBytes(2, 4, 12)  # gradients summed in fp32: 18
MEGATRON_FP16 = StateBytes(2, 2, 16)  # and an fp32 gradient beside the fp16 one: 20


def model_state_bytes(
    parameters: float, world_size: int, stage: int, states: StateBytes = MIXED_ADAM
) -> float:
    """Bytes of model states per device under ZeRO stage 0 (plain data parallel), 1, 2 or 3.

    Stage 1 shards the optimizer's states over `world_size` devices, stage 2 the gradients too,
    stage 3 the parameters too (ZeRO, Figure 1 and section 5). Stage 3 gathers a layer's parameters
    while it runs: they come on top, as activations and buffers do at any stage.
    """
    if world_size < 1:
        raise ValueError(f"world_size = {world_size}, at least 1")
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"ZeRO has no stage {stage}: 0 (nothing sharded), 1, 2 or 3")
    if parameters < 0:
        raise ValueError(f"parameters = {parameters}, at least 0")
    optimizer = states.optimizer / (world_size if stage >= 1 else 1)
    gradient = states.gradient / (world_size if stage >= 2 else 1)
    parameter = states.parameter / (world_size if stage >= 3 else 1)
    return parameters * (parameter + gradient + optimizer)


def step_traffic_elements(parameters: float, stage: int) -> float:
    """Elements each rank sends in a step, without the ring's (N-1)/N (ZeRO, section 7).

    An all-reduce is 2 per parameter. Stages 1 and 2 replace it by a reduce-scatter of gradients
    and an all-gather of parameters: 2 as well. Stage 3 gathers twice, for forward and backward: 3.
    """
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"ZeRO has no stage {stage}: 0 (nothing sharded), 1, 2 or 3")
    return (3 if stage == 3 else 2) * parameters


def layer_activation_bytes(
    model: Transformer,
    micro_batch: int,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    recompute: Recompute = "none",
) -> float:
    """What one layer saves of one microbatch for its backward, per device (Table 2), in 16 bits.

    Of sbh(34 + 5as/h), tensor parallelism divides all but 10 sbh by t (layer norms, dropouts and
    the inputs of the two blocks), sequence parallelism those too. Selective recomputation drops
    the attention matrices, 5as/h; full recomputation keeps only the layer's input. Of the 34, 16
    are inside of the MLP: a `Mixture` has its experts instead of them.
    """
    if tensor_parallel < 1 or micro_batch < 1:
        raise ValueError(
            f"tensor_parallel = {tensor_parallel} and micro_batch = {micro_batch}, at least 1"
        )
    if sequence_parallel and tensor_parallel == 1:
        raise ValueError("sequence parallelism splits over the tensor-parallel ranks; there is 1")
    t = tensor_parallel
    tokens = model.seq * micro_batch
    attention = 5 * model.heads * model.seq
    if recompute == "full":
        return 2 * tokens * model.hidden
    if recompute == "selective":
        attention = 0
    elif recompute != "none":
        raise ValueError(f"recompute = {recompute!r} is none of 'none', 'selective', 'full'")
    split = 8 * model.hidden + model.mlp_saved + attention
    if sequence_parallel:
        return tokens * (10 * model.hidden + split) / t
    return tokens * (10 * model.hidden + split / t)


def activation_bytes(
    model: Transformer,
    micro_batch: int,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    chunks: int = 1,
    microbatches: int | None = None,
    sequence_parallel: bool = False,
    recompute: Recompute = "none",
) -> float:
    """What the first pipeline stage saves under 1F1B: the most that any device holds.

    It has l/p layers and min(p, m) microbatches in flight: l layers' worth, whatever p is (Eq. 5).
    With v chunks a device (interleaving) it is 1 + (p-1)/(p v) times that. The model's
    inputs and outputs are left out: a few per cent of it at most (section 4.3).
    """
    p, v = pipeline_parallel, chunks
    if p < 1 or v < 1:
        raise ValueError(f"pipeline_parallel = {p} and chunks = {v}, at least 1")
    if model.layers % (p * v):
        raise ValueError(f"{model.layers} layers do not divide over {p} stages of {v} chunks")
    layer = layer_activation_bytes(
        model, micro_batch, tensor_parallel, sequence_parallel, recompute
    )
    in_flight = p if v == 1 else p + (p - 1) / v
    if microbatches is not None:
        if microbatches < 1:
            raise ValueError(f"microbatches = {microbatches}, at least 1")
        in_flight = min(in_flight, microbatches)
    return layer * model.layers / p * in_flight
