"""What the ranks that share a layer send for one microbatch, in seconds that nothing hides.

    tensor   activations are reduced, twice in each pass
    context  keys and values go round, and in the backward their gradients too
    expert   tokens go to their experts and come back, in each pass

The backward's messages are the forward's once more; a full recomputation repeats the forward's.
"""

from course_lib.techniques.mesh import Mesh

from .cluster import Cluster
from .memory_formulas import Recompute
from .mixture_of_experts import Mixture
from .plan_traffic import nodes_of_group, ring_seconds, swap_seconds
from .planner_assumptions import Software
from .transformer import Transformer


class LayerTraffic:
    """The traffic of a layer on a mesh, for microbatches of so many sequences."""

    def __init__(
        self,
        model: Transformer,
        cluster: Cluster,
        software: Software,
        mesh: Mesh,
        micro_batch: int,
        recompute: Recompute,
    ) -> None:
        self.model, self.cluster, self.software, self.mesh = model, cluster, software, mesh
        self.micro_batch, self.recompute = micro_batch, recompute
        self.tokens = micro_batch * model.seq / mesh.context  # of a rank
        self.forwards = 2 if recompute == "full" else 1

    def tensor(self) -> float:
        """All-reduces of activations in 16 bits, each of them two rings."""
        mesh, software = self.mesh, self.software
        nbytes = 2 * self.tokens * self.model.hidden
        ring = ring_seconds(self.cluster, mesh.tensor, 1, nbytes, software.rings)
        sent = software.reduces(self.recompute) * 2 * ring
        if not software.hides_tensor or mesh.tensor > self.cluster.devices_per_node:
            return sent
        products = software.product_seconds(
            self.model, self.cluster.device, self.micro_batch, mesh.tensor
        )
        return max(0.0, sent - (self.forwards + 2) * products / mesh.context)

    def context(self) -> float:
        """Keys and values of the other ranks, in each pass, and their gradients in fp32 on the way
        back: Liu et al. 2023, where a ring hides what it can behind attention (twice as long in the
        backward); Llama Team 2024, section 3.3.2, where all are gathered first.
        """
        mesh, model = self.mesh, self.model
        if mesh.context == 1:
            return 0.0
        nbytes = 4 * self.micro_batch * model.seq * model.kv_width / mesh.tensor  # two, 16 bits
        once = ring_seconds(self.cluster, mesh.context, mesh.tensor, nbytes, self.software.rings)
        hides = 0.0
        if self.software.overlap and self.software.ring_attention:
            hides = self.software.attention_seconds(
                model, self.cluster.device, self.micro_batch, mesh.tensor
            )
        attention = hides / mesh.context
        forward, backward = max(0.0, once - attention), max(0.0, 3 * once - 2 * attention)
        return self.forwards * forward + backward

    def expert(self) -> float:
        """Each token goes to the experts that it chose and back, in 16 bits, in every pass.

        Tensor-parallel ranks send a part of each token's numbers.
        """
        mesh, model = self.mesh, self.model
        if mesh.expert == 1 or not isinstance(model, Mixture) or self.software.hides_experts:
            return 0.0
        nbytes = 2 * self.tokens * model.chosen * model.hidden / mesh.tensor
        apart = mesh.tensor * mesh.context
        crossing = self._crossing(model, apart) if self.software.once_per_node else 1.0
        swap = swap_seconds(self.cluster, mesh.expert, apart, nbytes, crossing)
        return 2 * (self.forwards + 1) * swap

    def _crossing(self, model: Mixture, apart: int) -> float:
        """Nodes that a token goes to, over the experts that it chose.

        Of n nodes, n (1 - (1 - 1/n)^k) are hit by k choices of experts that are equally likely.
        """
        nodes = nodes_of_group(self.cluster, self.mesh.expert, apart)
        hit = nodes * (1 - (1 - 1 / nodes) ** model.chosen)
        return min(hit, model.nodes or hit) / model.chosen
