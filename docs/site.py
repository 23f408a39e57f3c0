"""Write the lessons as web pages, without answers: `make site`, or `python -m docs.site OUT`.

A page is the learner's notebook, with holes, and with the pictures that the lesson's own cells
draw. What cells print stays out: it would tell what a learner is to predict. A page asks nobody for
anything: formulas are MathML, which browsers draw themselves.
"""

import argparse
import html
import re
import sys
from collections.abc import Collection
from pathlib import Path

import nbformat
from jinja2 import pass_context
from jinja2.runtime import Context
from nbconvert import HTMLExporter
from nbformat import NotebookNode

from course_lib.classroom.formulas import FORMULA, without_punctuation
from course_lib.classroom.untouched_notebooks import untouched
from course_lib.simulate import simulate
from course_lib.techniques.schedules import gpipe, one_f_one_b
from course_lib.text import unbroken
from course_lib.views.gantt_chart import gantt_chart
from course_lib.views.mesh_links import chosen_mesh
from course_lib.views.ring_steps import ring_steps
from course_lib.views.staleness import staleness

from .mathml import mathml

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("exercises", "glossary", "torch_calls")  # of docs/, beside the lessons
VIEW = 'class="course-view"'
_LINK = re.compile(
    r"\]\((?:(?:\./|\.\./notebooks/)?(\d\d_\w+)\.ipynb|\.\./docs/(\w+)\.md)(#[^)]*)?\)"
)
_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_TEMPLATE = (
    """\
{% extends "lab/index.html.j2" %}
{% block html_head_js %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block html_head_css %}{{ super() }}
<style>@media screen and (prefers-color-scheme: dark) {
{{ resources.include_css("static/theme-dark.css") | striptags }}
:root { --jp-mirror-editor-operator-color: #d48fff }
}
"""
    + _STYLE
    + """
</style>
<script>
// Pictures that play ask the page for its theme.
const dark = matchMedia("(prefers-color-scheme: dark)");
const tell = () => document.body.dataset.jpThemeLight = !dark.matches;
addEventListener("DOMContentLoaded", tell);
dark.addEventListener("change", tell);
</script>
{% endblock %}
"""
)
# Of a rendered text: a formula and what follows it without a space; code; any other tag.
_PARTS = re.compile(
    r"(<math.*?</math>)([^\s<]+)?|<code>([^<\n]*)</code>|(<pre.*?</pre>|<[^>]*>)", re.DOTALL
)
_LONGEST = 44  # letters of code that fit into a line of a narrow page with some text
_INDEX = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Training across devices</title>
<style>
body {{ font: 17px/1.6 system-ui, sans-serif; max-width: 54rem; margin: auto; padding: 2rem 1rem }}
</style>
</head>
<body>
<h1>Training across devices: a course on real ranks</h1>
<p>Jupyter notebooks in which you build data, tensor, pipeline and sharded parallelism yourself, in
plain <code>torch.distributed</code>, and run each on real processes. Every exercise is checked, and
a deadlock ends in seconds with an explanation. Below are the lessons, to read; to do them, get the
course and run <code>make lab</code>.</p>
{pictures}
<h2>The lessons</h2>
<ul>
{items}
</ul>
</body>
</html>
"""


def build(root: Path, out: Path, lessons: Collection[str] = ()) -> list[Path]:
    """Write `out`/index.html and a page for each of the named lessons (default: all).

    Returns the lessons' pages. Raises `ValueError` for a name that is no lesson's.
    """
    notebooks = untouched(root)
    if unknown := set(lessons) - set(notebooks):
        raise ValueError(f"no lesson {', '.join(sorted(unknown))}: {', '.join(notebooks)}")
    out.mkdir(parents=True, exist_ok=True)
    pages, items = [], []
    for name in lessons or notebooks:
        solution = nbformat.read(root / "solutions" / f"{name}.ipynb", as_version=4)
        page = out / f"{name}.html"
        page.write_text(as_page(with_pictures(notebooks[name], solution), name), encoding="utf-8")
        pages.append(page)
        items.append(f'<li><a href="{page.name}">{html.escape(title(notebooks[name]))}</a></li>')
    for name in PAGES:
        text = (root / "docs" / f"{name}.md").read_text(encoding="utf-8")
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
        (out / f"{name}.html").write_text(as_page(notebook, name), encoding="utf-8")
        items.append(f'<li><a href="{name}.html">{html.escape(title(notebook))}</a></li>')
    index = _INDEX.format(items="\n".join(items), pictures="\n".join(living_pictures()))
    (out / "index.html").write_text(index, encoding="utf-8")
    return pages


def living_pictures() -> list[str]:
    """Three pictures that play in the page, before anything is installed, and one to rest on."""
    views = {
        "Six steps of a ring": ring_steps(4),
        "A pipeline: play it, and rest on a box": gantt_chart(
            {"GPipe": simulate(gpipe(4, 8)), "1F1B": simulate(one_f_one_b(4, 8))}
        ),
        "Asynchronous workers, at most two tasks ahead of the slowest": staleness(),
        "Whom a rank talks to in a mesh": chosen_mesh(),
    }
    return [f"<h2>{html.escape(said)}</h2>\n{view.html()}" for said, view in views.items()]


def with_pictures(notebook: NotebookNode, solution: NotebookNode) -> NotebookNode:
    """The learner's notebook, with what the cells that nobody has to fill in have drawn."""
    drawn = {cell.id: cell.get("outputs", ()) for cell in solution.cells}
    for cell in notebook.cells:
        if cell.cell_type == "code" and "nbgrader" not in cell.metadata:
            cell.outputs = [output for output in drawn[cell.id] if _is_picture(output)]
    return notebook


def as_page(notebook: NotebookNode, name: str) -> str:
    """The notebook as HTML, with links to the other lessons' pages."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            linked = _LINK.sub(r"](\1\2.html\3)", cell.source)
            cell.source = FORMULA.sub(_as_mathml, linked)
    exporter = _Exporter(exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.raw_template = _TEMPLATE
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": name}})
    return page


def title(notebook: NotebookNode) -> str:
    """The heading of a lesson."""
    first = next(cell for cell in notebook.cells if cell.cell_type == "markdown")
    return first.source.splitlines()[0].lstrip("# ")


def main(arguments: list[str] | None = None) -> int:
    """Write the site into a folder."""
    parser = argparse.ArgumentParser(prog="python -m docs.site", description=__doc__)
    parser.add_argument("out", type=Path, help="a folder")
    out = parser.parse_args(arguments).out
    print(f"{len(build(ROOT, out))} lessons: {out / 'index.html'}")
    return 0


class _Exporter(HTMLExporter):
    """nbconvert's pages, with texts whose lines are broken where a reader would."""

    @pass_context
    def markdown2html(self, context: Context, source: str) -> str:
        return as_read(super().markdown2html(context, source))


def as_read(page: str) -> str:
    """A rendered text in which no line ends before a comma, behind a hyphen or within a name."""
    parts, end = [], 0
    for found in _PARTS.finditer(page):
        parts.append(unbroken(page[end : found.start()]))
        formula, follows, code, _ = found.groups()
        if formula and follows:
            parts.append(f'<span class="nobr">{found[0]}</span>')
        elif code and len(html.unescape(code)) <= _LONGEST:
            parts.append(f'<code class="nobr">{code}</code>')
        else:
            parts.append(found[0])
        end = found.end()
    return "".join([*parts, page[end:]])


def _as_mathml(found: re.Match[str]) -> str:
    """A formula as MathML; code as it is."""
    code, block, inline = found.groups()
    if code or block:
        return code or mathml(block, block=True)
    formula, punctuation = without_punctuation(inline)
    return mathml(formula, block=False) + punctuation


def _is_picture(output: NotebookNode) -> bool:
    """Whether it is a view: an image with its words, and the script that lets it be played."""
    return VIEW in output.get("data", {}).get("text/html", "")


if __name__ == "__main__":
    sys.exit(main())
