"""What can be asked for on the command line, checked before any rank talks to another."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch

from course_lib.models import TinyGPT, tiny_gpt, tiny_mixture_gpt
from course_lib.techniques import three_d
from course_lib.techniques.mesh import Mesh
from course_lib.techniques.schedules import BY_NAME, Schedule

SCHEDULES = {name.lower(): make for name, make in BY_NAME.items()}
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Options(argparse.Namespace):
    """The command line, and what follows from it."""

    @property
    def table(self) -> Schedule:
        """The pipeline's schedule."""
        return SCHEDULES[self.schedule](self.pipeline, self.microbatches, self.stages_per_rank)

    @property
    def master_dtype(self) -> torch.dtype | None:
        """Precision of the optimizer's copy of the weights, where it is not the model's."""
        return None if self.precision == "fp32" else torch.float32

    def model(self) -> TinyGPT:
        """The model as one process has it, with the same weights on every rank."""
        shape = {"layers": self.layers, "hidden": self.hidden, "heads": self.heads}
        shape |= {"tied": self.tied, "seed": self.seed}
        if self.experts is None:
            model = tiny_gpt(**shape)
        else:
            mixture = {"experts": self.experts, "top_k": self.top_k, "balance": self.balance}
            model = tiny_mixture_gpt(**shape, **mixture)
        return model.to(PRECISIONS[self.precision])

    def mesh(self, world_size: int) -> Mesh:
        """The mesh over that many ranks; the data axis takes what the others leave, if not set."""
        rest, left = divmod(world_size, self.pipeline * self.context * self.tensor)
        if self.data is None and left:
            raise ValueError(
                f"{world_size} ranks do not divide over pipeline {self.pipeline} x context "
                f"{self.context} x tensor {self.tensor}"
            )
        mesh = Mesh(
            pipeline=self.pipeline,
            data=rest if self.data is None else self.data,
            context=self.context,
            tensor=self.tensor,
            expert=self.expert_parallel,
        )
        mesh.check_world_size(world_size)
        return mesh

    def check(self, world_size: int) -> None:
        """`ValueError` naming all the numbers, if these options cannot work on so many ranks."""
        mesh = self.mesh(world_size)
        with torch.device("meta"):
            model = self.model()
        three_d.check(model, mesh, self.table, self.zero, self.master_dtype)
        pieces = mesh.data * self.microbatches
        if self.batch % pieces:
            raise ValueError(
                f"a batch of {self.batch} samples does not divide into data {mesh.data} x "
                f"{self.microbatches} microbatches"
            )


def parse(arguments: Sequence[str]) -> Options:
    """Options from the command line; bad ones end the program with one sentence and status 2."""
    parser = _parser()
    options = parser.parse_args(arguments, namespace=Options())
    try:
        options.check(int(os.environ.get("WORLD_SIZE", "1")))
    except ValueError as error:
        _refuse(parser, str(error))
    return options


def _refuse(parser: argparse.ArgumentParser, reason: str) -> NoReturn:
    if int(os.environ.get("RANK", "0")):  # every rank has found the same; one says it
        raise SystemExit(2)
    parser.error(reason)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchrun ... -m course_lib.train",
        description="Train a small GPT to sort digits, on a mesh of ranks.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    mesh = parser.add_argument_group("mesh; the product of the axes is the number of ranks")
    mesh.add_argument("--pipeline", type=_positive, default=1, help="stages' ranks")
    mesh.add_argument("--tensor", type=_positive, default=1, help="ranks that share each layer")
    mesh.add_argument("--context", type=_positive, default=1, help="ranks that share a sequence")
    mesh.add_argument("--data", type=_positive, help="replicas; all ranks that are left if not set")
    mesh.add_argument(
        "--expert-parallel",
        type=_positive,
        default=1,
        help="ranks of the data axis that share the experts; adds no ranks",
    )
    mesh.add_argument("--zero", type=int, choices=(0, 1, 2, 3), default=0, help="ZeRO stage")

    pipeline = parser.add_argument_group("pipeline and memory")
    pipeline.add_argument("--schedule", choices=SCHEDULES, default="1f1b", help="its table")
    pipeline.add_argument("--microbatches", type=_positive, default=4, help="parts of a batch")
    pipeline.add_argument(
        "--stages-per-rank", type=_positive, default=2, help="with --schedule interleaved"
    )
    pipeline.add_argument("--recompute", action="store_true", help="keep only the stages' inputs")
    pipeline.add_argument("--precision", choices=PRECISIONS, default="fp32", help="of the model")

    model = parser.add_argument_group("model and data")
    model.add_argument("--layers", type=_positive, default=2, help="blocks")
    model.add_argument("--hidden", type=_positive, default=64, help="hidden size")
    model.add_argument("--heads", type=_positive, default=4, help="attention heads")
    model.add_argument("--experts", type=_positive, help="instead of each MLP; none if not set")
    model.add_argument("--top-k", type=_positive, default=2, help="experts of each token")
    model.add_argument("--balance", type=float, default=0.01, help="load-balancing loss's weight")
    model.add_argument("--tied", action="store_true", help="one matrix for input and output")
    model.add_argument("--batch", type=_positive, default=128, help="samples, over all replicas")
    model.add_argument("--steps", type=_positive, default=300, help="batches in all")
    model.add_argument("--lr", type=float, default=3e-3, help="AdamW's learning rate")
    model.add_argument("--seed", type=int, default=0, help="of weights and data")

    run = parser.add_argument_group("run")
    run.add_argument("--checkpoint", type=Path, metavar="DIR", help="save here, and resume")
    run.add_argument("--save-every", type=_positive, default=50, metavar="STEPS", help="steps")
    run.add_argument("--log-every", type=_positive, default=50, metavar="STEPS", help="steps")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"has to be at least 1, and is {number}")
    return number
