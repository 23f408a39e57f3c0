"""The size of a transformer, in parameters and in floating-point operations.

Formulas of Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021, for a decoder of l layers, hidden size h, sequence length s and vocabulary V
whose output layer shares the weights of the embedding.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Transformer:
    """A GPT by its five sizes. `heads` changes neither parameters nor operations."""

    layers: int
    hidden: int
    heads: int
    seq: int
    vocab: int

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} = {getattr(self, field.name)} must be at least 1")
        if self.hidden % self.heads:
            raise ValueError(f"hidden = {self.hidden} does not divide over heads = {self.heads}")

    @property
    def parameters(self) -> int:
        """12 l h^2 (1 + 13/(12h) + (V + s)/(12 l h)), Eq. 2, with the division carried out."""
        layer = 12 * self.hidden**2 + 13 * self.hidden
        return self.layers * layer + (self.vocab + self.seq) * self.hidden

    def flops(self, batch: int, recompute: bool = False) -> int:
        """Operations of one training step on `batch` sequences: forward, and backward at twice.

        72 B s l h^2 (1 + s/(6h) + V/(12 l h)): the operations that the model needs, for model
        FLOPs utilisation (Korthikanti et al. 2022, Eq. 7). With `recompute`, each layer's forward
        runs once more, as hardware sees it under full activation recomputation:
        96 B s l h^2 (1 + s/(6h) + V/(16 l h)), Eq. 3.
        """
        tokens = batch * self.seq
        layer = 24 * tokens * self.hidden**2 + 4 * tokens * self.seq * self.hidden
        logits = 2 * tokens * self.hidden * self.vocab
        return (4 if recompute else 3) * self.layers * layer + 3 * logits


def training_days(
    parameters: float,
    tokens: float,
    devices: int,
    flops_per_second: float,
    recompute: bool = True,
) -> float:
    """Days on `devices` of `flops_per_second` each: 8TP/(nX), Eq. 4; 6TP/(nX) if nothing is redone.

    A forward is 2 operations per parameter and token, a backward 4; attention's scores are left
    out.
    """
    for name, value in (("devices", devices), ("flops_per_second", flops_per_second)):
        if not value > 0:
            raise ValueError(f"{name} = {value} must be more than 0")
    work = (8 if recompute else 6) * tokens * parameters
    return work / (devices * flops_per_second) / 86400
