"""A transformer whose MLPs are experts: many parameters, of which each token passes a few.

Shazeer et al. 2017; Jiang et al. 2024 (Mixtral); DeepSeek-AI 2024 (DeepSeek-V3).
"""

from dataclasses import dataclass

from .transformer import Transformer


@dataclass(frozen=True)
class Mixture(Transformer):
    """A GPT whose layers have `experts` MLPs, of which each token passes `chosen`.

    inner      width of an expert, 4h unless given, and of `matrices` matrices
    shared     width of the MLP that all tokens pass besides, 0 for none
    attention  parameters of a layer's attention; unless given 2h^2, and 2h^2 by the share of its
               heads that have keys and values of their own
    head_size  h / heads unless given
    nodes      to how many nodes a token may go at most, each of them once (DeepSeek-V3, section
               2.1.2); anywhere unless given

    All layers are alike: a model whose first layers have no experts comes out a little larger.
    """

    experts: int = 8
    chosen: int = 2
    shared: int = 0
    attention: int | None = None
    head_size: int | None = None
    nodes: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.chosen <= self.experts:
            raise ValueError(f"chosen = {self.chosen} of experts = {self.experts}, at least 1")
        for name in ("head_size", "nodes", "attention"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ValueError(f"{name} = {size} must be at least 1")

    @property
    def attended(self) -> int:
        """Width of all heads together."""
        return self.hidden if self.head_size is None else self.heads * self.head_size

    @property
    def dense_parameters(self) -> int:
        """Of a layer: attention, router, two norms, and the shared expert."""
        return self._attention + self._router + 2 * self.hidden + self._mlp(self.shared)

    @property
    def expert_parameters(self) -> int:
        """Of all experts of a layer together."""
        return self.experts * self._mlp(self._inner)

    @property
    def active_parameters(self) -> int:
        """What one token passes, embedding and output layer included."""
        return self.layers * self.passed + (self.vocab + self.seq) * self.hidden

    @property
    def passed(self) -> int:
        """Weights of a layer that a token is multiplied with."""
        return self._attention + self._router + self._mlp(self.shared + self.chosen * self._inner)

    @property
    def mlp_saved(self) -> int:
        """Bytes: its copies on the way to experts and back, and what is inside of each, 16 bits."""
        inside = 2 * self.matrices * (self.shared + self.chosen * self._inner)
        return 4 * self.chosen * self.hidden + inside

    @property
    def _inner(self) -> int:
        return 4 * self.hidden if self.inner is None else self.inner

    @property
    def _router(self) -> int:
        return self.experts * self.hidden

    @property
    def _attention(self) -> int:
        return super()._attention if self.attention is None else self.attention
