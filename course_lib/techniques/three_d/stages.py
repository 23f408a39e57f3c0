"""Which layers each pipeline stage has, and what their parameters are called in one process."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from course_lib.techniques.expert_parallel.gpt import active_part
from course_lib.techniques.pipeline.partition import layer_costs, split_by_cost
from course_lib.techniques.schedules import Schedule, num_stages
from course_lib.techniques.tensor_parallel import WholeGPT


class Stages(nn.ModuleDict):
    """The stages of one rank. A single one can be called: ZeRO-3 gathers around that call.

    paths: where each layer is in the model of one process, such as "blocks.2".
    """

    def __init__(self, stages: Mapping[int, nn.Module], paths: Sequence[str]) -> None:
        super().__init__({str(stage): layers for stage, layers in stages.items()})
        self.paths = paths

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (stage,) = self.values()
        return stage(x)

    def whole_name(self, name: str) -> str:
        """The name in one process of a parameter: "1.3.up.bias" is "blocks.2.up.bias".

        It begins with the stage and the number of the layer.
        """
        _, layer, rest = name.split(".", 2)
        return f"{self.paths[int(layer)]}.{rest}"


def layers_of(model: WholeGPT) -> nn.Sequential:
    """The GPT as layers in a row, numbered from 0."""
    return nn.Sequential(model.embedding, *model.blocks, model.head)


def split_stages(model: WholeGPT, schedule: Schedule) -> list[range]:
    """Layers of each stage, of about equal cost: of experts, only those of one token count."""
    tokens = torch.zeros(1, model.embedding.positions.num_embeddings, dtype=torch.long)
    active = nn.Sequential(*map(active_part, layers_of(model)))
    return split_by_cost(layer_costs(active, tokens), num_stages(schedule))


def ends_of(model: WholeGPT, schedule: Schedule) -> list[tuple[int, str]]:
    """Stage and name of the two that share a tied weight: token embedding and projection."""
    last = len(layers_of(model)) - 1
    return [(0, "0.tokens.weight"), (num_stages(schedule) - 1, f"{last}.projection.weight")]


def paths_of(model: WholeGPT) -> list[str]:
    """The names of the layers in the model."""
    return ["embedding", *(f"blocks.{i}" for i in range(len(model.blocks))), "head"]
