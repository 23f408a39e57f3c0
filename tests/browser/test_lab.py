"""The way of a learner through JupyterLab: a wrong answer, what is said of it, the right one."""

import shutil

import pytest
from playwright.sync_api import expect

from course_lib.checks.registry import all_exercises
from course_lib.classroom import read_lesson
from course_lib.classroom.start_page import write_start_page
from tests.browser.lab import READY, Notebook, find_browser

pytestmark = pytest.mark.skipif(
    find_browser() is None,
    reason="needs a chromium or google-chrome on the PATH (Debian: apt-get install chromium)",
)
NOTEBOOK = "02_ring_all_reduce"


@pytest.fixture(scope="module")
def solved(root) -> dict[str, str]:
    """Id of the answer cell -> the cell with its answer."""
    lesson = read_lesson(root / "solutions" / f"{NOTEBOOK}.py")
    return {f"answer-{c.name}": c.source for c in lesson.cells if c.kind == "answer"}


def test_from_the_start_page_to_a_wrong_answer_that_is_explained_and_the_right_one(
    root, lab, solved
):
    answer, check = "answer-ring_all_reduce", "check-ring_all_reduce"
    right = solved[answer]
    average = right.replace("return tensor", "return tensor.div_(n)")
    assert average != right

    shutil.copy(root / "notebooks" / f"{NOTEBOOK}.ipynb", lab.folder)
    write_start_page(lab.folder.parent, all_exercises())
    lab.start("START.md")
    page = lab.page.locator(".jp-MarkdownViewer")
    expect(page).to_contain_text("exercises passed.")
    page.locator("table a").first.click()
    lab.page.wait_for_function(READY)
    expect(lab.page.locator(".lm-TabBar-tab.jp-mod-dirty")).to_have_count(0)

    notebook = Notebook(lab.page, lab.folder / f"{NOTEBOOK}.ipynb")
    imports = next(identity for identity in notebook.ids if identity.startswith("code-"))
    notebook.run(imports)

    notebook.run(answer)
    assert notebook.run(check) == "ring_all_reduce: not attempted yet"

    for needed in ("answer-ring_reduce_scatter", "answer-ring_all_gather"):
        notebook.write(needed, solved[needed])
        assert notebook.run(needed) == ""

    notebook.write(answer, average)
    assert notebook.run(answer) == ""
    verdict = notebook.run(check)
    assert "you averaged a sum" in verdict
    assert "Traceback" not in verdict
    card = notebook.cell(check).locator(".course-card")
    card.get_by_text("Hint 1 of 3").click()
    expect(card.locator("details").first).to_have_attribute("open", "")

    notebook.write(answer, right)
    notebook.run(answer)
    assert "ring_all_reduce: passed." in notebook.run(check)
    assert notebook.cell(check).locator(".course-card").count() == 1
