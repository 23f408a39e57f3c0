"""What training software makes of a device: the assumptions of the planner, all in one place.

Data sheets promise peaks. `matrix` is the share of the 16-bit peak that matrix products reach;
everything else (layer norms, dropout, GeLU, softmax) moves bytes, and is taken to pass `passes`
times over what a layer saves for its backward, at the full memory bandwidth, in the forward alone.
A backward takes twice its forward. Small layers so come out less efficient than large ones.

Both numbers are fitted to the ten rows of Megatron-LM's Table 1 (`published.fit`), and not changed
for any other machine: `published.error_table` shows how far off that is.
"""

from dataclasses import dataclass, replace

from .hardware import Device
from .memory import Recompute, layer_activation_bytes
from .transformer import Transformer


@dataclass(frozen=True)
class Software:
    """How efficient a training program is, and what it knows how to do.

    fused_attention    attention matrices are never written (FlashAttention), nor saved
    sequence_parallel  the rest of a layer is split over the tensor-parallel ranks too
    overlap            gradients, gathered parameters and sends move while the device computes
    """

    name: str
    matrix: float
    passes: float
    fused_attention: bool
    sequence_parallel: bool
    overlap: bool

    def __post_init__(self) -> None:
        if not 0 < self.matrix <= 1:
            raise ValueError(f"{self.name}: matrix = {self.matrix} is a share of the peak, 0 to 1")
        if not self.passes >= 0:
            raise ValueError(f"{self.name}: passes = {self.passes}, at least 0")

    @property
    def recomputations(self) -> tuple[Recompute, ...]:
        """What can be recomputed. A fused attention leaves nothing for "selective" to drop."""
        return ("none", "full") if self.fused_attention else ("none", "selective", "full")

    def splits_sequence(self, tensor: int) -> bool:
        """Whether layers of `tensor` ranks run sequence parallel."""
        return self.sequence_parallel and tensor > 1

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
        scores = 4 * tokens * model.seq * model.hidden  # QK^T and its product with V
        products = 24 * tokens * model.hidden**2 + scores
        moved = self.saved_bytes(model, micro_batch, tensor, "none")
        forward = self._seconds(device, products / tensor, moved)
        if recompute == "full":
            return 4 * forward
        if recompute == "selective":
            attention = moved - self.saved_bytes(model, micro_batch, tensor, "selective")
            return 3 * forward + self._seconds(device, scores / tensor, attention)
        return 3 * forward

    def logits_seconds(
        self, model: Transformer, device: Device, micro_batch: int, tensor: int
    ) -> float:
        """The output layer's forward and backward of one microbatch."""
        products = 6 * micro_batch * model.seq * model.hidden * model.vocab
        return self._seconds(device, products / tensor, 0)

    def _seconds(self, device: Device, products: float, moved: float) -> float:
        compute = products / (self.matrix * device.half_flops)
        return compute + self.passes * moved / device.memory_bandwidth


MEGATRON_2021 = Software(
    "Megatron-LM of 2021",
    matrix=0.63,
    passes=2.0,
    fused_attention=False,
    sequence_parallel=False,
    overlap=False,
)
MODERN = replace(
    MEGATRON_2021,
    name="a program of today",
    fused_attention=True,
    sequence_parallel=True,
    overlap=True,
)
