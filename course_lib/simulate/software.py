"""What training software makes of a cluster: the assumptions of the planner, all in one file.

Data sheets promise peaks. Of the rate that the best matrix product reaches on a device, a program's
products reach the share `matrix`; everything else (layer norms, dropout, GeLU, softmax) moves
bytes, and is taken to pass `passes` times over what a layer saves for its backward, at the full
memory bandwidth, in the forward only. A backward takes twice its forward. Small layers so come out
less efficient than large ones.

Both numbers are fitted to the ten rows of Megatron-LM's Table 1 (`accuracy.fit`, rounded), and not
changed for any other program or machine. Everything else is what the programs do, as told at each
of them. What of that matters was learned from the published runs too, above all the six of ZeRO-3;
`accuracy.error_table` shows how far off the planner is for the rows that set no number.
"""

import math
from dataclasses import dataclass, replace

from .hardware import Device
from .memory import Recompute, layer_activation_bytes
from .transformer import Transformer


@dataclass(frozen=True)
class Software:
    """How efficient a training program is, and what it knows how to do.

    fused_attention    attention matrices are never written (FlashAttention), nor saved
    sequence_parallel  the rest of a layer is split over the tensor-parallel ranks too
    overlap            sends, gathered parameters, and gradients that are reduced once a step move
                       while the device computes. Gradients that are reduced with each microbatch
                       do not: the gathers of the next layer are in their way. (An assumption; if
                       they did, FSDP on H100s would come out too fast by up to a quarter)
    rings              that a collective over whole nodes makes; each leaves a node by one adapter
    messages           collectives that a layer's parameters travel in
    stops_early        a recomputed forward ends before the layer's last product, whose result no
                       backward needs
    keeps              parameters of the largest layer that stays gathered from its recomputed
                       forward to its backward; a larger one is gathered once more
    """

    name: str
    matrix: float
    passes: float
    fused_attention: bool
    sequence_parallel: bool
    overlap: bool
    rings: int = 8
    messages: int = 1
    stops_early: bool = False
    keeps: float = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.matrix <= 1:
            raise ValueError(f"{self.name}: matrix = {self.matrix} is a share, 0 to 1")
        if not self.passes >= 0:
            raise ValueError(f"{self.name}: passes = {self.passes}, at least 0")
        for field in ("rings", "messages"):
            if getattr(self, field) < 1:
                raise ValueError(f"{self.name}: {field} = {getattr(self, field)}, at least 1")

    @property
    def recomputations(self) -> tuple[Recompute, ...]:
        """What can be recomputed. A fused attention leaves nothing for "selective" to drop."""
        return ("none", "full") if self.fused_attention else ("none", "selective", "full")

    def splits_sequence(self, tensor: int) -> bool:
        """Whether layers of `tensor` ranks run sequence parallel."""
        return self.sequence_parallel and tensor > 1

    def gathers(self, layer: float, recompute: Recompute) -> int:
        """How often stage 3 gathers a layer of so many parameters with each microbatch."""
        return 3 if recompute == "full" and layer > self.keeps else 2

    def reduces(self, recompute: Recompute) -> int:
        """How often a layer reduces over its tensor-parallel ranks: twice in each pass."""
        if recompute != "full":
            return 4
        return 5 if self.stops_early else 6

    def saved_bytes(
        self, model: Transformer, micro_batch: int, tensor: int, recompute: Recompute
    ) -> float:
        """What a layer saves of a microbatch on one device."""
        if recompute == "none" and self.fused_attention:
            recompute = "selective"  # the same formula: no attention matrices
        split = self.splits_sequence(tensor)
        return layer_activation_bytes(model, micro_batch, tensor, split, recompute)

    def layer_seconds(
        self,
        model: Transformer,
        device: Device,
        micro_batch: int,
        tensor: int,
        recompute: Recompute,
    ) -> float:
        """A layer's forward and backward of one microbatch, without communication."""
        tokens = micro_batch * model.seq
        linear = 24 * tokens * model.hidden**2 / tensor
        scores = 4 * tokens * model.seq * model.hidden / tensor  # QK^T and its product with V
        attention = self._attention(device, scores)
        moved = self.saved_bytes(model, micro_batch, tensor, "none")
        forward = self._products(device, linear) + attention + self._moves(device, moved)
        if recompute == "full":
            last = self._products(device, linear / 3) if self.stops_early else 0.0
            return 4 * forward - last
        if recompute == "selective":
            dropped = moved - self.saved_bytes(model, micro_batch, tensor, "selective")
            return 3 * forward + attention + self._moves(device, dropped)
        return 3 * forward

    def logits_seconds(
        self, model: Transformer, device: Device, micro_batch: int, tensor: int
    ) -> float:
        """The output layer's forward and backward of one microbatch; logits are fp32."""
        tokens = micro_batch * model.seq
        products = 2 * tokens * model.hidden * model.vocab / tensor
        moved = 4 * tokens * model.vocab / tensor
        return 3 * (self._products(device, products) + self._moves(device, moved))

    def _products(self, device: Device, operations: float) -> float:
        return operations / (self.matrix * device.matmul_flops)

    def _attention(self, device: Device, operations: float) -> float:
        """A fused attention has a rate of its own; otherwise it is two matrix products."""
        if self.fused_attention:
            return operations / device.attention_flops
        return self._products(device, operations)

    def _moves(self, device: Device, nbytes: float) -> float:
        return self.passes * nbytes / device.memory_bandwidth


# Its collectives are taken as the ring of lesson 02, which comes to each node once: one adapter.
MEGATRON_2021 = Software(
    "Megatron-LM of 2021",
    matrix=0.72,
    passes=1.5,
    fused_attention=False,
    sequence_parallel=False,
    overlap=False,
    rings=1,
)
MEGATRON_2022 = replace(
    MEGATRON_2021, name="Megatron-LM with sequence parallelism", sequence_parallel=True
)
# The same kernels and the same ring. By DeepSpeed's documentation and code of stage 3, parameters
# are fetched ahead (stage3_prefetch_bucket_size), each weight matrix by itself, of which a layer
# has four: biases are below stage3_param_persistence_threshold = 10^5 and stay. They are let go
# unless they are used again within stage3_max_reuse_distance = 10^9 parameters.
DEEPSPEED_2021 = replace(
    MEGATRON_2021,
    name="DeepSpeed of 2021 around Megatron-LM's layers",
    overlap=True,
    messages=4,
    keeps=1e9,
)
# NCCL makes a ring for each adapter; FSDP gathers a block at a time, and recomputes it while it is
# gathered (PyTorch's documentation of `fully_shard`); `torch.utils.checkpoint` stops early.
MODERN = replace(
    MEGATRON_2021,
    name="a program of today",
    fused_attention=True,
    sequence_parallel=True,
    overlap=True,
    rings=8,
    stops_early=True,
)
