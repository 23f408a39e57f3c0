"""Pieces of parameters in torch.distributed.checkpoint: saved by N ranks, loaded by any other N.

DCP saves a tensor as chunks that may come from different ranks, and cuts together what a reader
asks for from whatever chunks there are. Its own planners know tensors and DTensors, whose shards
are rows. A piece is a run of a flattened parameter, so these planners say where each one lies: a
chunk [offset, offset + n) of a tensor of `numel` elements.
"""

from dataclasses import dataclass

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list


@dataclass(frozen=True)
class Piece:
    """Elements [offset, offset + tensor.numel()) of a flattened tensor of `numel` elements."""

    tensor: torch.Tensor
    offset: int
    numel: int

    @property
    def chunk(self) -> ChunkStorageMetadata:
        size = torch.Size([self.tensor.numel()])
        return ChunkStorageMetadata(torch.Size([self.offset]), size)


class SavePieces(DefaultSavePlanner):
    """Saves a dict of pieces. The pieces of all ranks must cover each tensor, and not overlap."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def create_local_plan(self) -> SavePlan:
        self.plan = SavePlan([_item(name, piece) for name, piece in self.state_dict.items()])
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor:
        return self.state_dict[write_item.index.fqn].tensor.detach()


class LoadPieces(DefaultLoadPlanner):
    """Fills the tensors of a dict of pieces, from pieces of any other cut."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def set_up_planner(
        self,
        state_dict: dict[str, Piece],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        # DCP's own goes through the values for tensors on "meta", and loses what it does not know.
        self.state_dict, self.metadata = state_dict, metadata
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None  # there is one to read from
        items: list[ReadItem] = []
        for name, piece in self.state_dict.items():
            saved = self.metadata.state_dict_metadata[name]
            assert isinstance(saved, TensorStorageMetadata)
            items += create_read_items_for_chunk_list(name, saved, [piece.chunk])
        return LoadPlan(items)

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        tensor = self.state_dict[read_item.dest_index.fqn].tensor.detach()
        return tensor.narrow(0, read_item.dest_offsets[0], read_item.lengths[0])


def _item(name: str, piece: Piece) -> WriteItem:
    properties = TensorProperties.create_from_tensor(piece.tensor)
    return WriteItem(
        MetadataIndex(name, piece.chunk.offsets),
        WriteItemType.SHARD,
        tensor_data=TensorWriteData(piece.chunk, properties, torch.Size([piece.numel])),
    )
