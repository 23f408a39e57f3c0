"""The web pages of the lessons: readable, with pictures, and without a line of any answer."""

import re
from html.parser import HTMLParser

import nbformat
import pytest

from course_lib.classroom import read_lesson
from course_lib.classroom.strip_solutions import answers
from docs import site

LESSON = "02_ring_all_reduce"
LETTERS = 20  # a shorter line of an answer is a phrase of the language


class Text(HTMLParser):
    """What a reader sees and hears of a page, without spaces."""

    def __init__(self, page: str):
        super().__init__()
        self.seen: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.feed(page)
        self.text = "".join("".join(self.seen).split())

    def handle_data(self, data: str) -> None:
        self.seen.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.images.append(dict(attrs))
            self.seen.append(dict(attrs).get("alt") or "")


@pytest.fixture(scope="module")
def telling(root) -> list[str]:
    """The lines of the lesson's answers that a learner's notebook does not have, without spaces."""
    cells = read_lesson(root / "solutions" / f"{LESSON}.py").cells
    visible = "".join("".join(cell.student for cell in cells).split())
    lines = (line for c in cells for text in answers(c.source) for line in text.splitlines())
    squeezed = ("".join(line.split()) for line in lines)
    return [line for line in squeezed if len(line) >= LETTERS and line not in visible]


def told(page: str, telling: list[str]) -> list[str]:
    text = Text(page).text
    return [line for line in telling if line in text]


def test_a_page_has_the_lesson_and_its_pictures_and_no_answer(root, tmp_path, telling):
    (page,) = site.build(root, tmp_path, [LESSON])
    text = page.read_text(encoding="utf-8")
    assert told(text, telling) == []
    read = Text(text)
    assert "defring_all_reduce(" in read.text
    pictures = [i for i in read.images if (i["src"] or "").startswith("data:image/svg+xml")]
    assert pictures
    assert all(i["alt"] for i in pictures)
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert f'<a href="{page.name}">02 · Ring all-reduce</a>' in index
    living = Text(index).images
    assert len(living) == 4
    assert all(i["alt"] and i["src"].startswith("data:image/svg+xml") for i in living)
    for html in (index, text):  # nothing is fetched from anywhere; links are for readers to follow
        fetched = re.findall(r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="(\w+:[^"]*)', html)
        assert not [address for address in fetched if not address.startswith("data:")]
        assert "import " not in "".join(re.findall(r"<script.*?</script>", html, re.DOTALL))


def test_an_answer_on_a_page_would_be_found(root, telling):
    solution = nbformat.read(root / "solutions" / f"{LESSON}.ipynb", as_version=4)
    found = told(site.as_page(solution, LESSON), telling)
    assert len(found) >= 0.9 * len(telling) > 30


def test_links_to_other_lessons_lead_to_their_pages():
    cell = nbformat.v4.new_markdown_cell("[before](00_ranks.ipynb) and [there](x.ipynb)")
    page = site.as_page(nbformat.v4.new_notebook(cells=[cell]), "any")
    assert 'href="00_ranks.html"' in page
    assert 'href="x.ipynb"' in page


def test_formulas_need_no_script_and_code_keeps_its_dollars():
    cell = nbformat.v4.new_markdown_cell("$n_w$ of\n\n$$\\frac{a}{b}$$\n\nand `$HOME`, `$x$`")
    page = site.as_page(nbformat.v4.new_notebook(cells=[cell]), "any")
    assert page.count("<math") == 2
    assert "<msub><mi>n</mi><mi>w</mi></msub>" in page
    assert "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>" in page
    assert all(f">{code}</code>" in page for code in ("$HOME", "$x$"))
    assert "mathjax" not in page.lower()


def test_an_arrow_has_room_for_its_label_and_signs_need_no_special_font():
    tex = r"$$a \xrightarrow{\text{all-to-all}} b = \sum_i x_i \left\lceil\frac{a}{b}\right\rceil$$"
    cell = nbformat.v4.new_markdown_cell(tex)
    page = site.as_page(nbformat.v4.new_notebook(cells=[cell]), "any")
    assert "<mpadded" not in page
    room = '<mspace width="0.5em"></mspace>'
    label = f"<mrow>{room}<mrow><mtext>all-to-all</mtext></mrow>{room}</mrow>"
    assert f'<mover><mo stretchy="true">⟶</mo>{label}</mover>' in page
    assert '<mo class="sum" largeop="false">' in page
    assert page.count('<mo class="tall"') == 2


@pytest.mark.parametrize(
    ("source", "together"),
    [
        ("sends $n$, and", r'<span class="nobr"><math.*</math>,</span> and'),
        ("sends $n-1,$ and", r'<span class="nobr"><math.*<mn>1</mn>.*</math>,</span> and'),
        ("of ZeRO-2 and", r'nowrap">ZeRO-2</span> and'),
        ("even 0-dimensional, or", r'nowrap">0-dimensional,</span> or'),
        ("sends 2(n-1)/n of", r'nowrap">2\(n-1\)/n</span>'),
        ("the all-reduce", "the all-reduce"),
        ("a `code that is short`", '<code class="nobr">code that is short</code>'),
        ("[x](https://a.b/c-1)", 'href="https://a.b/c-1"'),
        ("```\nmake 1-2\n```", "<code>make 1-2"),
        (f"`{'long ' * 20}`", "<code>long long"),
    ],
)
def test_no_line_ends_within_what_is_read_as_one_word(source, together):
    cell = nbformat.v4.new_markdown_cell(source)
    page = site.as_page(nbformat.v4.new_notebook(cells=[cell]), "any")
    assert re.search(together, page)


def test_a_page_is_dark_where_its_reader_has_it_dark():
    page = site.as_page(nbformat.v4.new_notebook(cells=[]), "any")
    _, dark = page.split("@media screen and (prefers-color-scheme: dark) {")
    assert "--jp-layout-color0: #111" in dark.split("</style>")[0]
    assert "color-scheme: light dark" in dark.split("</style>")[0]


def test_an_unknown_lesson_is_told_the_known_ones(root, tmp_path):
    with pytest.raises(ValueError, match=r"no lesson 99_none: 00_ranks, "):
        site.build(root, tmp_path, ["99_none"])
