"""What a check enforces stands under the statement of its exercise, in both notebooks."""

from course_lib.checks.contract import GENERAL, Contract
from course_lib.classroom.contract_notes import with_contracts
from course_lib.classroom.lesson import read_lesson

SOURCE = """\
# %% [markdown]
# ### Exercise 1: `double`
#
# Twice as much.

# %% exercise="double"
def double(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION


# %% check="double"
check(double)

# %% [markdown]
# ### Exercise 2: `half`

# %% exercise="half"
def half(x):
    ### BEGIN SOLUTION
    return x / 2
    ### END SOLUTION
"""


def lesson(tmp_path, source=SOURCE):
    (tmp_path / "01_double.py").write_text(source)
    return read_lesson(tmp_path / "01_double.py")


def test_each_statement_ends_with_its_contract_and_the_first_with_what_holds_for_all(tmp_path):
    contracts = {"double": Contract(holds="nothing is held"), "half": Contract(anew=True)}
    made = with_contracts(lesson(tmp_path), contracts)
    first, second = (cell for cell in made.cells if cell.kind == "markdown")
    assert first.student == first.source
    assert "Twice as much.\n\n> **Enforced:** Nothing is held.\n>\n> **Always" in first.source
    assert first.source.endswith(GENERAL)
    assert second.source == (
        "### Exercise 2: `half`\n\n> **Enforced:** The result is new, in memory of its own."
    )


def test_a_line_that_an_editor_saved_into_the_source_is_not_written_twice(tmp_path):
    saved = SOURCE.replace(
        "# Twice as much.\n", "# Twice as much.\n#\n# > **Allowed:** Old words.\n"
    )
    contracts = {"double": Contract(anew=True, changes=("x",))}
    assert with_contracts(lesson(tmp_path, saved), contracts) == with_contracts(
        lesson(tmp_path), contracts
    )


def test_what_may_come_and_what_is_allowed_are_lines_of_their_own(tmp_path):
    contract = Contract(takes="any shape", gives="the result is flat", changes=("x",))
    made = with_contracts(lesson(tmp_path), {"half": contract})
    last = [cell for cell in made.cells if cell.kind == "markdown"][-1]
    assert last.source.endswith(
        "`half`\n\n> **Arguments:** Any shape.\n>\n> **Enforced:** The result is flat.\n>\n"
        "> **Allowed:** Your function may change `x`."
    )


def test_without_a_contract_only_the_first_statement_changes(tmp_path):
    plain, made = lesson(tmp_path), with_contracts(lesson(tmp_path), {})
    changed = [a != b for a, b in zip(plain.cells, made.cells, strict=True)]
    assert changed == [True, False, False, False, False]
