"""What recording costs a training step."""

import tempfile
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist

from course_lib.models import batches, tiny_gpt
from course_lib.observe import Recorder
from course_lib.ranks import collect
from tests.bench.measurement import Measurement, Row, paired

_STEPS = 5


def _on_each_rank(memory: bool) -> tuple[float, ...]:
    model = tiny_gpt(hidden=128, seed=0)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens, targets = next(batches(1, 64))

    def steps() -> None:
        for _ in range(_STEPS):
            optimizer.zero_grad()
            model.loss(tokens, targets).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()

    with tempfile.TemporaryDirectory() as folder:

        def watched(recorder: object) -> None:
            with recorder:
                steps()

        return paired(
            lambda: watched(Recorder(Path(folder, "journal"), dist.get_rank(), memory)),
            lambda: watched(nullcontext()),
            pairs=11,
        )


def _measure() -> list[Measurement]:
    def ratios(memory: bool) -> tuple[float, ...]:
        return collect(_on_each_rank, 2, (memory,), observe=False, timeout=300)[0]

    what = "tiny GPT, hidden 128, 2 ranks"
    return [
        Measurement(what, ratios(False), limit=1.10),
        Measurement(f"{what}, with memory", ratios(True)),  # only if asked for
    ]


ROWS = [Row("observe", "a training step, recorded against not recorded", _measure)]
