"""The size of a transformer, in parameters and in floating-point operations.

Formulas of Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021, for a decoder of l layers, hidden size h, sequence length s and vocabulary V
whose output layer shares the weights of the embedding.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Transformer:
    """A GPT by its five sizes. `heads` changes neither parameters nor operations.

    kv_heads  heads of keys and values, where several query heads share one: what travels when a
              sequence is cut over ranks. As many as `heads` unless given.
    inner     width inside of the MLP. Unless given, a layer is counted as 12 h^2 + 13 h, an MLP of
              4h and an attention whose heads share nothing.
    matrices  of the MLP: 2, or 3 where its input is gated
    """

    layers: int
    hidden: int
    heads: int
    seq: int
    vocab: int
    kv_heads: int | None = None
    inner: int | None = None
    matrices: int = 2

    def __post_init__(self) -> None:
        for field in fields(Transformer):
            size = getattr(self, field.name)
            if size is not None and size < 1:
                raise ValueError(f"{field.name} = {size} must be at least 1")
        if self.hidden % self.heads:
            raise ValueError(f"hidden = {self.hidden} does not divide over heads = {self.heads}")
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"heads = {self.heads} do not divide over kv_heads = {self.kv_heads}")
        if self.matrices not in (2, 3):
            raise ValueError(f"matrices = {self.matrices}, and an MLP has 2 or 3")

    @property
    def attended(self) -> int:
        """Width of all heads together."""
        return self.hidden

    @property
    def kv_width(self) -> float:
        """Width of the keys of a token, and of its values."""
        return self.attended * (self.kv_heads or self.heads) / self.heads

    @property
    def dense_parameters(self) -> int:
        """Of a layer, without those of experts among which tokens choose; two norms included."""
        if self.inner is None:
            return 12 * self.hidden**2 + 13 * self.hidden
        return self.passed + 2 * self.hidden

    @property
    def expert_parameters(self) -> int:
        """Of all experts of a layer together: none here (`mixture.Mixture`)."""
        return 0

    @property
    def passed(self) -> int:
        """Weights of a layer that a token is multiplied with."""
        if self.inner is None:
            return 12 * self.hidden**2
        return self._attention + self._mlp(self.inner)

    @property
    def mlp_saved(self) -> int:
        """Bytes of a token inside of an MLP: what each matrix makes and takes there, 16 bits."""
        return 2 * self.matrices * (4 * self.hidden if self.inner is None else self.inner)

    @property
    def parameters(self) -> int:
        """12 l h^2 (1 + 13/(12h) + (V + s)/(12 l h)), Eq. 2, with the division carried out."""
        layer = self.dense_parameters + self.expert_parameters
        return self.layers * layer + (self.vocab + self.seq) * self.hidden

    def flops(self, batch: int, recompute: bool = False) -> int:
        """Operations of one training step on `batch` sequences: forward, and backward at twice.

        72 B s l h^2 (1 + s/(6h) + V/(12 l h)): the operations that the model needs, for model
        FLOPs utilisation (Korthikanti et al. 2022, Eq. 7). With `recompute`, each layer's forward
        runs once more, as hardware sees it under full activation recomputation:
        96 B s l h^2 (1 + s/(6h) + V/(16 l h)), Eq. 3.
        """
        tokens = batch * self.seq
        layer = 2 * tokens * self.passed + 4 * tokens * self.seq * self.attended
        logits = 2 * tokens * self.hidden * self.vocab
        return (4 if recompute else 3) * self.layers * layer + 3 * logits

    @property
    def _attention(self) -> int:
        """Weights: queries and the output, keys and values."""
        return round(2 * self.hidden * (self.attended + self.kv_width))

    def _mlp(self, width: int) -> int:
        return self.matrices * self.hidden * width


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
