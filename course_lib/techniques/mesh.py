"""The mesh: where a rank stands when data, context, tensor and pipeline parallelism are combined.

    Mesh(pipeline=2, data=2, tensor=2)          8 ranks, the last axis innermost

                     stage 0                 stage 1
    replica 0    [ 0 | 1 ]  tensor       [ 4 | 5 ]
    replica 1    [ 2 | 3 ]               [ 6 | 7 ]

Neighbours on the innermost axis are neighbours in rank, so they share a node. Tensor parallelism,
which sends the most, goes there, and pipeline parallelism, which sends the least, outermost:
Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
SC 2021, sections 3.1 and 3.2 (arXiv 2104.04473).

Experts fold into the data axis. Mesh(data=4, expert=2) has 4 ranks: neighbours along the data axis
share one set of experts between them, and every 2 of them hold a whole set.

    data           [ 0 | 1 | 2 | 3 ]     all weights that are not experts' are averaged here
    expert         [ 0 | 1 ] [ 2 | 3 ]   tokens travel to their experts here
    expert_data    [ 0 | 2 ] [ 1 | 3 ]   ranks with the same experts

So `expert` divides `data` and adds no ranks, as in DeepSpeed-MoE (Rajbhandari et al., ICML 2022,
arXiv 2201.05596).

Context parallelism cuts sequences as data parallelism cuts batches. All ranks of both axes have the
same weights, and gradients are averaged over all of them, the group "data_context". The axis stands
between tensor and data, for Llama 3 (arXiv 2407.21783, section 3.3.2) orders its axes by how much
they ask of the network, and keys and values travel in every layer. With `context` = 1 there is no
such axis: Mesh(context=1) is Mesh().

A mesh is plain data, with which a run can also be planned: only `open` loads torch. A further axis
is a field of `Mesh` and its name in `AXES`. Needs no neighbour.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

AXES = ("pipeline", "data", "context", "tensor")
FOLDED = ("expert", "expert_data")  # in the data axis


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """Sizes of the axes, and the order in which ranks are laid out along them.

    expert: how many ranks of the data axis a set of experts is spread over.
    order: outermost axis first; without "context" where `context` is 1. Raises `ValueError` for
        sizes below one, a wrong order, and data ranks that do not divide into groups of `expert`.
    """

    pipeline: int = 1
    data: int = 1
    context: int = 1
    tensor: int = 1
    expert: int = 1
    order: tuple[str, ...] = AXES

    def __post_init__(self) -> None:
        wanted = [axis for axis in AXES if axis != "context" or self.context != 1]
        if self.context == 1:
            order = tuple(axis for axis in self.order if axis != "context")
            object.__setattr__(self, "order", order)
        if sorted(self.order) != sorted(wanted):
            raise ValueError(f"the order {self.order} has to name each of {tuple(wanted)} once")
        for axis, size in zip(self.order, self.shape, strict=True):
            if size < 1:
                raise ValueError(f"{axis} = {size}, and every axis needs at least one rank")
        if self.expert < 1 or self.data % self.expert:
            raise ValueError(
                f"{self.data} ranks of the data axis do not divide into groups of {self.expert} "
                "that share the experts"
            )

    def __str__(self) -> str:
        axes = " x ".join(
            f"{axis} {size}" for axis, size in zip(self.order, self.shape, strict=True)
        )
        return axes if self.expert == 1 else f"{axes}, expert {self.expert}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes in the order of the axes."""
        return tuple(getattr(self, axis) for axis in self.order)

    @property
    def world_size(self) -> int:
        return math.prod(self.shape)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Axis -> coordinate of `rank` along it."""
        self._check_rank(rank)
        found = {}
        for axis, size in zip(reversed(self.order), reversed(self.shape), strict=True):
            rank, found[axis] = divmod(rank, size)
        return {axis: found[axis] for axis in self.order}

    def rank(self, **coordinates: int) -> int:
        """The rank with these coordinates, one for each axis: the inverse of `coordinates`."""
        rank = 0
        for axis, size in zip(self.order, self.shape, strict=True):
            if not 0 <= coordinates[axis] < size:
                raise ValueError(
                    f"there is no coordinate {coordinates[axis]} on the {axis} axis of {size}"
                )
            rank = rank * size + coordinates[axis]
        return rank

    def group(self, axis: str, rank: int) -> list[int]:
        """The ranks that differ from `rank` on that axis only, itself included, in order.

        axis: one of AXES, or of FOLDED, which are parts of the data axis. "data_context" and
        "expert_data" are the ranks with the same weights, so along the context axis, too.
        """
        here = self.coordinates(rank)
        if axis in ("data_context", "expert_data"):
            data = self._along("data" if axis == "data_context" else axis, here)
            pairs = itertools.product(data, range(self.context))
            return sorted(self.rank(**{**here, "data": d, "context": c}) for d, c in pairs)
        along = "data" if axis in FOLDED else axis
        return [self.rank(**{**here, along: i}) for i in self._along(axis, here)]

    def groups(self, axis: str) -> list[list[int]]:
        """All groups along an axis; each rank is in exactly one."""
        groups = {tuple(self.group(axis, rank)) for rank in range(self.world_size)}
        return [list(group) for group in sorted(groups)]

    def _along(self, axis: str, here: Mapping[str, int]) -> range:
        """The coordinates of a group through `here`."""
        if axis == "expert":
            first = here["data"] // self.expert * self.expert
            return range(first, first + self.expert)
        if axis == "expert_data":
            return range(here["data"] % self.expert, self.data, self.expert)
        return range(getattr(self, axis))

    def check_world_size(self, world_size: int) -> None:
        """`ValueError` unless the mesh needs exactly that many ranks."""
        if self.world_size != world_size:
            raise ValueError(
                f"a mesh of {self} needs {self.world_size} ranks, and there are {world_size}"
            )

    def open(self, device: str = "cpu") -> "DeviceMesh":
        """The process groups of this mesh: `open().get_group("data")`.

        Called by all ranks of the default group, at the same point of their programs.
        """
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        self.check_world_size(dist.get_world_size())
        return init_device_mesh(device, self.shape, mesh_dim_names=self.order)

    def _check_rank(self, rank: int) -> None:
        if not 0 <= rank < self.world_size:
            raise ValueError(
                f"a mesh of {self} has no rank {rank}, only 0 to {self.world_size - 1}"
            )


# ------------------------------------------------------------------------------------------------
# Placement on nodes
# ------------------------------------------------------------------------------------------------


def node_of(rank: int, ranks_per_node: int) -> int:
    """The node of a rank: nodes are filled one after the other, as torchrun does."""
    return rank // ranks_per_node


def nodes_spanned(mesh: Mesh, axis: str, ranks_per_node: int) -> int:
    """The most nodes over which one group along `axis` is spread: 1 if all stay inside one."""
    return max(
        len({node_of(rank, ranks_per_node) for rank in group}) for group in mesh.groups(axis)
    )


def bytes_by_link(matrix: Sequence[Sequence[int]], ranks_per_node: int) -> tuple[int, int]:
    """Bytes sent (inside nodes, between nodes), of `matrix[source][destination]` in bytes."""
    inside = between = 0
    for source, row in enumerate(matrix):
        for destination, sent in enumerate(row):
            if node_of(source, ranks_per_node) == node_of(destination, ranks_per_node):
                inside += sent
            else:
                between += sent
    return inside, between
