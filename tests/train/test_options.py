"""Options that cannot work are refused in one sentence that names the numbers."""

import pytest

from course_lib.train.options import parse


@pytest.mark.parametrize(
    ("ranks", "line", "says"),
    [
        (
            6,
            "--pipeline 2 --tensor 2",
            "do not divide over pipeline 2 x context 1 x tensor 2",
        ),
        (6, "--context 4", "6 ranks do not divide over pipeline 1 x context 4 x tensor 1"),
        (32, "--context 32", "tokens cannot be cut over 32 ranks"),
        (4, "--pipeline 2 --data 4", "needs 8 ranks, and there are 4"),
        (3, "--tensor 3", "4 attention heads do not divide over 3"),
        (8, "--pipeline 8 --microbatches 8", "4 layers cannot be cut into 8 stages"),
        (2, "--batch 30", "30 samples does not divide into data 2 x 4 microbatches"),
        (2, "--schedule zb-h1 --zero 2 --pipeline 2", "zero-bubble"),
        (1, "--precision bf16", "zero=1"),
        (1, "--layers 0", "at least 1"),
        (4, "--experts 6 --expert-parallel 4", "6 experts do not divide over the 4 ranks"),
        (6, "--experts 8 --expert-parallel 4", "6 ranks of the data axis do not divide"),
        (2, "--expert-parallel 2", "the experts of a model that has none"),
        (1, "--experts 2 --top-k 3", "a token cannot choose 3 of 2 experts"),
    ],
)
def test_a_bad_combination_ends_with_its_numbers(ranks, line, says, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    with pytest.raises(SystemExit) as ended:
        parse(line.split())
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_the_data_axis_takes_the_ranks_that_are_left(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert parse(["--pipeline", "2", "--tensor", "2"]).mesh(8).data == 2
    assert parse(["--context", "2"]).mesh(8).data == 4


def test_other_ranks_than_the_first_stay_silent(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit):
        parse(["--tensor", "2"])
    assert capsys.readouterr().err == ""
