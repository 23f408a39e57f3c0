"""Reports fit the width of a notebook, alike whatever number a cell has."""

import pytest

from course_lib.ranks.report_width import WIDTH, clipped, fits, wrapped

WORDS = "rank 1 sends 5 float32 in cell [{}], line 3 and nobody takes them, so it waits; " * 3


def numbered(number: int, text: str) -> str:
    return text.replace("{}", str(number))


@pytest.mark.parametrize("number", [1, 29, 400])
def test_the_number_of_a_cell_moves_nothing(number: int) -> None:
    text = wrapped("Why: ", numbered(number, WORDS))
    assert text.replace(f"[{number}]", "[{}]") == wrapped("Why: ", numbered(7, WORDS)).replace(
        "[7]", "[{}]"
    )
    assert "".join(text.split()) == "".join(("Why: " + numbered(number, WORDS)).split())
    for length in range(WIDTH - 8, WIDTH + 4):
        row = "rank 0  cell [{}], line 3:  ".ljust(length, "x")
        assert fits(numbered(number, row)) == fits(numbered(7, row))
        cut = clipped(numbered(number, row))
        assert cut == numbered(number, clipped(numbered(7, row)).replace("[7]", "[{}]"))


def test_lines_are_cut_or_wrapped_only_where_they_are_too_long() -> None:
    exact, long = "y" * WIDTH, "y" * (WIDTH + 1)
    assert clipped(exact) == exact
    assert clipped(long) == "y" * (WIDTH - 2) + " …"
    assert wrapped("", "a few words") == "a few words"
    lines = wrapped("Try: ", WORDS).split("\n")
    assert len(lines) > 2
    assert all(len(line) <= WIDTH for line in lines)
    assert all(line.startswith("     ") for line in lines[1:])
    assert not any(line.endswith(("rank", "5")) for line in lines)
