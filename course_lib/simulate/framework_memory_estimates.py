"""What DeepSpeed's and Megatron's own calculators say, as they count.

Not how memory is, but how those programs estimate it: use them to read what others print.
Both write "GB" and "MB" and mean 2^30 and 2^20 bytes.

deepspeed_zero2, deepspeed_zero3   runtime/zero/stage_1_and_2.py and stage3.py, `estimate_...`
megatron_activation_bytes          megatron/training/theoretical_memory_usage.py
"""

from typing import Literal, NamedTuple

from .transformer import Transformer

Offload = Literal["none", "optimizer", "all"]
_BUFFER = 1.5  # DeepSpeed's additional_buffer_factor


class DeviceAndHost(NamedTuple):
    """Bytes on each GPU, and on each node's CPU."""

    device: float
    host: float


def deepspeed_zero2(
    parameters: float, gpus_per_node: int, nodes: int = 1, offload: Offload = "none"
) -> DeviceAndHost:
    """Stage 2; the optimizer's states can go to the host.

    The documentation still prints 15.93 GB for t5-3b on 8 GPUs: that is the formula of older code,
    4P + 16P/N, where today's has 2P + 18P/N.
    """
    _check(gpus_per_node, nodes, offload, ("none", "optimizer"))
    gpus = gpus_per_node * nodes
    if offload == "optimizer":
        return DeviceAndHost(2 * parameters, parameters * max(4 * gpus, 16) * _BUFFER)
    device = 2 * parameters + int(18 * parameters / gpus)
    return DeviceAndHost(device, 4 * parameters * gpus_per_node * _BUFFER)


def deepspeed_zero3(
    parameters: float,
    largest_layer: float,
    gpus_per_node: int,
    nodes: int = 1,
    offload: Offload = "none",
    zero_init: bool = True,
) -> DeviceAndHost:
    """Stage 3; the optimizer's states, or parameters too, can go to the host.

    largest_layer  parameters of the layer that is gathered whole
    zero_init      the model is made in pieces, so that no process ever builds all of it
    """
    _check(gpus_per_node, nodes, offload, ("none", "optimizer", "all"))
    gathered = 4 * largest_layer
    whole = 4 * gpus_per_node  # each process builds the model in fp32 first
    if offload == "none":
        device = gathered + int(18 * parameters / (gpus_per_node * nodes))
        built = largest_layer if zero_init else parameters
        return DeviceAndHost(device, whole * built * _BUFFER)
    sharded = 2 if offload == "optimizer" else 0
    device = gathered + int(sharded * parameters / (gpus_per_node * nodes))
    held = (18 - sharded) / nodes
    return DeviceAndHost(device, parameters * (held if zero_init else max(whole, held)) * _BUFFER)


def _check(gpus_per_node: int, nodes: int, offload: str, known: tuple[str, ...]) -> None:
    if gpus_per_node < 1 or nodes < 1:
        raise ValueError(f"gpus_per_node = {gpus_per_node} and nodes = {nodes}, at least 1")
    if offload not in known:
        raise ValueError(f"offload = {offload!r} is none of {', '.join(map(repr, known))}")


def megatron_activation_bytes(
    model: Transformer,
    micro_batch: int,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    chunks: int = 1,
    microbatches: int | None = None,
    sequence_parallel: bool = False,
) -> float:
    """Activations of the first stage as Megatron estimates them, attention matrices never counted.

    With sequence parallelism everything is divided by t; without it 5% are added on top, and the
    logits are counted in 16 bits rather than 32.
    """
    t, p = tensor_parallel, pipeline_parallel
    if min(micro_batch, t, p, chunks) < 1:
        raise ValueError(
            f"micro_batch = {micro_batch}, tensor_parallel = {t}, pipeline_parallel = {p} and"
            f" chunks = {chunks}, at least 1"
        )
    tokens = model.seq * micro_batch
    layer = tokens * model.hidden * (34 if sequence_parallel else 10 + 24 / t)
    saved: float = layer * model.layers + p * tokens * (
        8 + model.hidden
    )  # ids, embedding's dropout
    if chunks > 1:
        saved *= 1 + (p - 1) / (p * chunks)
    elif microbatches is not None:
        saved *= min(1, microbatches / p)
    if sequence_parallel:
        output = 4.0 * tokens * (model.hidden + model.vocab) if p == 1 else 0.0
        return (saved + output) / t
    output = 2 * tokens * (model.hidden + model.vocab / t) if p == 1 else 0
    return 1.05 * (saved + output)
