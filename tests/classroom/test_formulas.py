"""Punctuation stays with the formula that it follows."""

import pytest

from course_lib.classroom.formulas import with_punctuation, without_punctuation


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sends $n-1$, then", "sends $n-1,$ then"),
        ("of $a$ ($b$).", "of $a$ ($b).$"),
        ("what is $x$? One", "what is $x?$ One"),
        ("reads $x$: as", "reads $x$: as"),
        ("a line\n$x\n+ y$.\n", "a line\n$x\n+ y.$\n"),
        ("$$x$$.", "$$x$$."),
        ("`$HOME`, `$x$`. and $y$", "`$HOME`, `$x$`. and $y$"),
        ("```\necho $A, $B.\n```", "```\necho $A, $B.\n```"),
    ],
)
def test_what_follows_a_formula_in_a_line_moves_into_it(before, after):
    assert with_punctuation(before) == after
    assert with_punctuation(after) == after


@pytest.mark.parametrize(
    ("formula", "parts"),
    [
        ("n-1.", ("n-1", ".")),
        ("b).", ("b", ").")),
        ("2(n-1),", ("2(n-1)", ",")),
        ("f(x)", ("f(x)", "")),
        (".", (".", "")),
    ],
)
def test_it_can_be_taken_out_again(formula, parts):
    assert without_punctuation(formula) == parts
