"""Two agents train together; a rank killed in the middle costs the steps since the checkpoint."""

import re

import pytest
import torch

from course_lib.models import batches, tiny_gpt, tiny_mixture_gpt, train
from tests.train.torchrun import ranks_of, torchrun

STEPS, BATCH, LEARNING_RATE = 120, 32, 1e-2


def loss_in_one_process():
    torch.set_num_threads(1)
    model = tiny_gpt(layers=1, hidden=16, heads=4, seed=0)
    history = train(
        model, batches(STEPS, BATCH, 0), lambda p: torch.optim.AdamW(p, lr=LEARNING_RATE)
    )
    return history.losses[-1]


def test_a_killed_rank_is_started_again_from_the_checkpoint(tmp_path, root):
    options = ["--pipeline=2", "--microbatches=2", "--layers=1", "--hidden=16", "--zero=1"]
    options += [f"--steps={STEPS}", f"--batch={BATCH}", f"--lr={LEARNING_RATE}"]
    options += [f"--checkpoint={tmp_path / 'saved'}", "--save-every=20", "--log-every=10"]
    resumed, loss = None, None
    with torchrun(options, root, nodes=2, ranks=1) as (output, agents):
        for line in output:
            if line.startswith("step   30") and resumed is None:
                (rank,) = ranks_of(agents[1])
                rank.kill()
            if found := re.match(r"resumed after step (\d+)", line):
                resumed = int(found[1])
            if found := re.match(rf"step  {STEPS}  loss (\S+)", line):
                loss = float(found[1])
        assert [agent.wait(60) for agent in agents] == [0, 0]
    assert resumed is not None
    assert resumed % 20 == 0
    assert resumed >= 20
    assert loss == pytest.approx(loss_in_one_process(), abs=2e-3)
    assert [path.name for path in (tmp_path / "saved").iterdir()] == [f"step-{STEPS:06}"]


@pytest.mark.parametrize(
    ("options", "model", "mesh"),
    [
        (
            ["--experts=4", "--expert-parallel=2", "--balance=0"],
            lambda: tiny_mixture_gpt(layers=1, hidden=16, experts=4, seed=0),
            "pipeline 1 x data 2 x tensor 1, expert 2",
        ),
        (
            ["--context=2"],
            lambda: tiny_gpt(layers=1, hidden=16, heads=4, seed=0),
            "pipeline 1 x data 1 x context 2 x tensor 1",
        ),
    ],
    ids=["experts", "context"],
)
def test_two_ranks_train_as_one_process_does(options, model, mesh, root):
    options = [*options, "--zero=1", "--microbatches=2", "--layers=1", "--hidden=16"]
    options += ["--steps=10", "--batch=32", f"--lr={LEARNING_RATE}"]
    torch.set_num_threads(1)
    history = train(model(), batches(10, 32, 0), lambda p: torch.optim.AdamW(p, lr=LEARNING_RATE))
    with torchrun(options, root, nodes=1, ranks=2) as (output, agents):
        said = output.read()
        assert [agent.wait(60) for agent in agents] == [0]
    assert mesh in said
    (loss,) = re.findall(r"^step   10  loss (\S+)", said, re.MULTILINE)
    assert float(loss) == pytest.approx(history.losses[-1], abs=2e-3)
    for busiest in re.findall(r"busiest expert (\S+) times its share$", said, re.MULTILINE):
        assert 1 <= float(busiest) <= 2  # with two choices nobody can have more of four shares
    assert ("busiest expert" in said) == ("--experts=4" in options)
    assert "sorts" in said
