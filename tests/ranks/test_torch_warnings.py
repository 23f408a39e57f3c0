"""What torch warns of: once a run, in one line, beside what the learner prints."""

import warnings

import torch
import torch.distributed as dist

from course_lib.ranks import run_ranks, torch_warnings


def old_names() -> None:
    print("before")
    gathered = torch.empty(2 * 3)
    dist._all_gather_base(gathered, torch.ones(3))  # a name that torch has given up
    warnings.warn("the learner's own", stacklevel=1)
    print("after")


def test_a_deprecated_name_is_told_once_and_below_the_output(capsys) -> None:
    results = run_ranks(old_names, 2)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("torch warns:")] == lines[-1:]
    assert "_all_gather_base" in lines[-1]
    assert "/" not in lines[-1]
    for rank in (0, 1):
        printed = results.output[rank].splitlines()
        assert (printed[0], printed[-1]) == ("before", "after")
        assert "_all_gather_base" not in results.output[rank]
        assert "the learner's own" in results.output[rank]


def test_torch_is_quoted_without_paths_and_insides() -> None:
    said = (
        "x is old, see /usr/lib/python3/site-packages/torch/x.py\n (Triggered internally at a.cpp)"
    )
    assert torch_warnings.in_one_line(said) == "x is old, see x.py"
