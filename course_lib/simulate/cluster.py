"""A cluster: equal nodes of equal devices, a link inside the node and one between nodes.

    dgx_a100                                   one node of 8
    dgx_a100.with_nodes(128)                   1024 devices
    dgx_a100.with_links(inside="10 GbE")       the same devices on a slow wire

Ranks fill node after node. A message between nodes crosses one network adapter.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .hardware import A100_40GB, A100_80GB, H100, H200, LINKS, V100_32GB, Device, Link


@dataclass(frozen=True)
class Cluster:
    """`adapters` is how many of the links between nodes each node has."""

    name: str
    device: Device
    devices_per_node: int
    inside: Link
    between: Link
    adapters: int = 1
    nodes: int = 1

    def __post_init__(self) -> None:
        for field in ("devices_per_node", "adapters", "nodes"):
            if getattr(self, field) < 1:
                raise ValueError(f"{self.name}: {field} = {getattr(self, field)}, at least 1")

    @property
    def size(self) -> int:
        """Devices in all nodes."""
        return self.nodes * self.devices_per_node

    def with_nodes(self, nodes: int) -> "Cluster":
        """The same kind of cluster, larger or smaller."""
        return replace(self, nodes=nodes)

    def with_links(
        self, inside: Link | str | None = None, between: Link | str | None = None
    ) -> "Cluster":
        """The same devices on other links, given as such or by name (`hardware.LINKS`)."""
        return replace(
            self,
            inside=self.inside if inside is None else _link(inside),
            between=self.between if between is None else _link(between),
        )

    def node(self, rank: int) -> int:
        """Where a rank lives."""
        if not 0 <= rank < self.size:
            raise ValueError(f"rank {rank} on {self.name} with {self.size} devices")
        return rank // self.devices_per_node

    def adapter(self, rank: int) -> tuple[int, int]:
        """The node of a rank, and by which of its adapters it goes out: neighbours share."""
        node, local_rank = divmod(rank, self.devices_per_node)
        return node, local_rank * self.adapters // self.devices_per_node

    def link(self, a: int, b: int) -> Link:
        """What a message from rank a to rank b crosses."""
        return self.inside if self.node(a) == self.node(b) else self.between

    def slowest_link(self, ranks: Sequence[int]) -> Link:
        """What holds up a flat algorithm over `ranks`: a network if they are on several nodes."""
        return self.inside if len({self.node(rank) for rank in ranks}) == 1 else self.between

    def require(self, world_size: int) -> None:
        """Raise unless there is a device for each rank."""
        if world_size > self.size:
            nodes = -(-world_size // self.devices_per_node)
            raise ValueError(
                f"{world_size} ranks on {self.name} with {self.size} devices;"
                f" with_nodes({nodes}) has room"
            )


def _link(link: Link | str) -> Link:
    if isinstance(link, Link):
        return link
    if link not in LINKS:
        raise ValueError(f"no link is named {link!r}; there are {', '.join(LINKS)}")
    return LINKS[link]


v100_32gb = Cluster("DGX-2", V100_32GB, 16, LINKS["NVLink 2"], LINKS["InfiniBand EDR"], adapters=8)
dgx_a100_40gb = Cluster(
    "DGX A100 40 GB", A100_40GB, 8, LINKS["NVLink 3"], LINKS["InfiniBand HDR"], adapters=8
)
dgx_a100 = Cluster("DGX A100", A100_80GB, 8, LINKS["NVLink 3"], LINKS["InfiniBand HDR"], adapters=8)
dgx_h100 = Cluster("DGX H100", H100, 8, LINKS["NVLink 4"], LINKS["InfiniBand NDR"], adapters=8)
dgx_h200 = Cluster("DGX H200", H200, 8, LINKS["NVLink 4"], LINKS["InfiniBand NDR"], adapters=8)
CLUSTERS = {
    cluster.name: cluster for cluster in (v100_32gb, dgx_a100_40gb, dgx_a100, dgx_h100, dgx_h200)
}
