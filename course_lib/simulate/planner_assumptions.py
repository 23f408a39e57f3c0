"""What training software makes of a cluster: the assumptions of the planner, all in one file.

Data sheets promise peaks. Of the rate that the best matrix product reaches on a device, a program's
products reach the share `matrix`; everything else (layer norms, dropout, GeLU, softmax) moves
bytes, and is taken to pass `passes` times over what a layer saves for its backward, at the full
memory bandwidth, in the forward only. A backward takes twice its forward. Small layers so come out
less efficient than large ones.

Both numbers are fitted to the ten rows of Megatron-LM's Table 1 (`accuracy.fit`, rounded), and not
changed for any other program or machine. Everything else is what the programs do, as told at each
of them in `frameworks.py`. What of that matters was learned from the published runs too,
above all the six of ZeRO-3; `accuracy.error_table` shows how far off the planner is for the rows
that set no number.
"""

import math
from dataclasses import dataclass

from .hardware import Device
from .memory_formulas import Recompute, StateBytes, layer_activation_bytes
from .transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class Software:
    """How efficient a training program is, and what it knows how to do.

    fused_attention    attention matrices are never written (FlashAttention), nor saved
    sequence_parallel  the rest of a layer is split over the tensor-parallel ranks too
    overlap            sends, gathered parameters, and gradients that are reduced once per step move
                       while the device computes. Gradients that are reduced with each microbatch
                       do not: the gathers of the next layer are in their way. (An assumption; if
                       they did, FSDP on H100s would come out too fast by up to a quarter)
    overlap_alone      without a pipeline, gradients move behind the last backward all the same
    ring_attention     keys and values of other ranks move while attention computes on those that
                       are there; otherwise they are gathered first, and nothing hides that
    hides_tensor       inside of a node, what tensor parallelism sends moves while the products that
                       make it or need it are computed, as far as these last
    rings              that a collective over whole nodes makes; each leaves a node by one adapter
    messages           collectives that a layer's parameters travel in
    sends              share of an adapter's bandwidth that messages between stages reach
    interleaves_from   stages from which on a schedule can be interleaved
    uneven_stages      some stages may have a layer more than others
    once_per_node      a token travels to each node once, and from there to all its experts on it
    hides_experts      tokens travel to their experts while the device computes for another
                       microbatch
    products           how much faster its matrix products are than those of 16 bits
    stops_early        a recomputed forward ends before the layer's last product, whose result no
                       backward needs
    keeps              parameters of the largest layer that stays gathered from its recomputed
                       forward to its backward; a larger one is gathered once more
    converts           gradients are written out in the precision in which they are added up before
                       they are, rather than while
    attention          share of a device's peak that its fused attention reaches, where that is not
                       the device's own
    """

    name: str
    matrix: float
    passes: float
    fused_attention: bool
    sequence_parallel: bool
    overlap: bool
    overlap_alone: bool = False
    ring_attention: bool = True
    hides_tensor: bool = False
    rings: int = 8
    messages: int = 1
    sends: float = 1.0
    interleaves_from: int = 2
    uneven_stages: bool = False
    once_per_node: bool = False
    hides_experts: bool = False
    products: float = 1.0
    stops_early: bool = False
    keeps: float = math.inf
    converts: bool = False
    attention: float | None = None

    def __post_init__(self) -> None:
        for field in ("matrix", "sends", "attention"):
            share = getattr(self, field)
            if share is not None and not 0 < share <= 1:
                raise ValueError(f"{self.name}: {field} = {share} is a share, 0 to 1")
        if not self.products > 0:
            raise ValueError(f"{self.name}: products = {self.products}, more than 0")
        if not self.passes >= 0:
            raise ValueError(f"{self.name}: passes = {self.passes}, at least 0")
        for field in ("rings", "messages", "interleaves_from"):
            if getattr(self, field) < 1:
                raise ValueError(f"{self.name}: {field} = {getattr(self, field)}, at least 1")

    @property
    def recomputations(self) -> tuple[Recompute, ...]:
        """What can be recomputed. A fused attention leaves nothing for "selective" to drop."""
        return ("none", "full") if self.fused_attention else ("none", "selective", "full")

    def splits_sequence(self, tensor: int) -> bool:
        """Whether layers of `tensor` ranks run sequence parallel."""
        return self.sequence_parallel and tensor > 1

    def hides_gradients(self, stages: int) -> bool:
        """Whether gradients that are reduced once per step move behind the last backward."""
        return self.overlap or (self.overlap_alone and stages == 1)

    def gathers(self, layer: float, recompute: Recompute) -> int:
        """How often stage 3 gathers a layer of so many parameters with each microbatch."""
        return 3 if recompute == "full" and layer > self.keeps else 2

    def reduces(self, recompute: Recompute) -> int:
        """How often a layer reduces over its tensor-parallel ranks: twice in each pass."""
        if recompute != "full":
            return 4
        return 5 if self.stops_early else 6

    def added_bytes(self, states: StateBytes) -> float:
        """What adding a microbatch's gradients to the sum moves of a parameter, in bytes.

        The new gradient, 16 bits, is read, and the sum is read and written. A converted copy is
        written and read besides.
        """
        sums = 4 if self.converts else 2
        return 2 + sums * states.gradient

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
        linear = self.product_seconds(model, device, micro_batch, tensor)
        attention = self.attention_seconds(model, device, micro_batch, tensor)
        moved = self.saved_bytes(model, micro_batch, tensor, "none")
        forward = linear + attention + self._moves(device, moved)
        if recompute == "full":
            last = linear / 3 if self.stops_early else 0.0
            return 4 * forward - last
        if recompute == "selective":
            dropped = moved - self.saved_bytes(model, micro_batch, tensor, "selective")
            return 3 * forward + attention + self._moves(device, dropped)
        return 3 * forward

    def product_seconds(
        self, model: Transformer, device: Device, micro_batch: int, tensor: int
    ) -> float:
        """A layer's products with its weights, in the forward."""
        return self._products(device, 2 * micro_batch * model.seq * model.passed / tensor)

    def attention_seconds(
        self, model: Transformer, device: Device, micro_batch: int, tensor: int
    ) -> float:
        """QK^T and its product with V, in the forward: 4 s^2 h operations, none left out by a mask.

        A fused attention has a rate of its own; otherwise these are two matrix products.
        """
        operations = 4 * micro_batch * model.seq**2 * model.attended / tensor
        if not self.fused_attention:
            return self._products(device, operations)
        return operations / device.half_flops / (self.attention or device.attention_share)

    def logits_seconds(
        self, model: Transformer, device: Device, micro_batch: int, tensor: int
    ) -> float:
        """The output layer's forward and backward of one microbatch.

        Its products stay in 16 bits where others have fewer, and logits are fp32.
        """
        tokens = micro_batch * model.seq
        products = 2 * tokens * model.hidden * model.vocab / tensor
        moved = 4 * tokens * model.vocab / tensor
        in_16_bits = self.products * self._products(device, products)
        return 3 * (in_16_bits + self._moves(device, moved))

    def _products(self, device: Device, operations: float) -> float:
        return operations / (self.products * self.matrix * device.matmul_flops)

    def _moves(self, device: Device, nbytes: float) -> float:
        return self.passes * nbytes / device.memory_bandwidth
