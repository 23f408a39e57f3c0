"""Numbers in the text of a lesson: each is in a cell, in an output, cited, given or worked out.

A number is a claim. Left alone are small counts, years, numbers of sections and the like, times of
exercises, and the section of reflections, whose questions give numbers and whose answers work with
them; what they work out is calculated again.
"""

import ast
import math
import re
from dataclasses import dataclass

import nbformat
import pytest
import torch

from course_lib.checks.registry import all_exercises
from course_lib.classroom.build_notebooks import Course
from course_lib.models import tiny_gpt
from course_lib.views.context_explorer import context_ring

_NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
_IN_CODE = re.compile(r"(?<![\w.])\d[\d_,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_UNIT = re.compile(r"\s*(?:%|per cent|[kMGT]B|m?s\b|µs|[mb]illion|trillion|Gbit)")
_SMALL = 10  # counts up to this are no claims, unless with % or a point
_SCALES = tuple(10.0**power for power in (0, 2, 3, 6, 9, -3, -6, -9, -12))
_CITED = re.compile(
    r"arXiv|et al\.|\bpapers?\b|published|\breports?\b|README|Table \d|Figure \d"
    r"|OSDI|NIPS|NeurIPS|ICML|ICLR|VLDB|SC 20|SOSP"
)
# What is no claim, though it has digits.
_NAMES = [
    r"(?s)```.*?```|\$\$.*?\$\$|`[^`]*`|\$[^$]*\$",
    r"\]\([^)]*\)",
    r"(?m)^#+ .*$",
    r"(?i)\b(?:sections?|tables?|figures?|lessons?|exercises?|versions?|stages?|ranks?|levels?|row|"
    r"request|issue|torch|chapter|takeaways?|Llama|GPT-|PCIe|InceptionV) ?[\d.]+"
    r"(?:(?:,| and| to| or) [\d.]+)*",
    r"\b(?:19|20)\d\d\b",
    r"(?m)^\s*\d+\. ",
    r"(?s)\*\*It takes\*\*.*",
    r"\b\d+ (?:more )?minutes",
]

GIVEN = {
    "": {  # everywhere
        "80": "GB of an A100 or an H100",
        "32": "GB of a V100",
        "175": "billions of parameters of GPT-3, from its paper (lesson 00)",
        "35": "GPUs of 80 GB for GPT-3 (lesson 00)",
    },
    "01_parameter_server": {"4000": "an example of keys", "7000": "an example of keys"},
    "02_ring_all_reduce": {
        "2111": "digits of an example",
        "277.75": "1111 / 4, as an example",
        "90": "% in Horovod's README, as the text says below the table",
        "79": "the same",
        "68": "the same",
        "0.001": "the range of the values drawn below",
    },
    "03_data_parallel": {"90": "the same table as in lesson 02, by the same source"},
    "06_zero": {
        "48": "blocks of a larger model, supposed",
        "18": "bytes, by the documentation of Megatron-LM's distributed optimizer",
    },
    "08_three_d_parallelism": {
        "400": "bytes that the contract of a norm and of a loss allow",
        "512": "sequences of a small batch, supposed",
    },
    "10_experts": {"60": "steps, chosen for a question"},
}


def idle_of(split: str, documents: int) -> float:
    """Per cent, as the explorer of lesson 09 says."""
    return float(re.search(r"([\d.]+)% idle", f"{context_ring(split, documents=documents)}")[1])


GPT_BYTES = sum(p.nbytes for p in tiny_gpt(seed=0).parameters())
WORKED_OUT = {
    "01_parameter_server": {"102": 4 * 25.6},
    "02_ring_all_reduce": {
        "24,000": 4 * 6000,
        "1280": 4e6 / (25e9 / 8) * 1e6,
        "1.94": 2 * 31 / 32,
        "408": GPT_BYTES / 1e3,
        "3,500": 4 * 138_357_544 / (25e9 / 8) / 50e-6,
    },
    "03_data_parallel": {
        "6.3": 2 * 63 * 50e-6 * 1e3,
        "408": GPT_BYTES / 1e3,
        "1022": 2 * 511,
        "124": (25088 * 4096 + 4096 * 4096 + 4096 * 1000) / 1e6,
        "138": 138.36,
        "4.5": 4 * (262_144 + 9 * 256**2 + 262_144 + 2 * 1536) / 1e6,  # a block of conv4
        "1.3": (2 * 7 * 50e-6 + 2 * 7 / 8 * 4 * 512**2 / (25e9 / 8)) * 1e3,
    },
    "05_pipeline_parallel": {
        "2.8": 175e9 * 16 / 1e12,
        "26.25": 8 * 3 + 3 * 3 / 4,
        "28.5": 8 * 3 + 3 * 3 / 2,
    },
    "06_zero": {
        "256": 65536**0.5,  # whose square is beyond what float16 holds
        "5.12": 64 * 80e9 / 1e12,
        "0.12": 7.5e9 * 16 / 1e12,
        "21.6": 7.5 * (2 + 14 / 16),
        "35.6": 7.5 * (4 + 12 / 16),
        "2800": 16 * 175,
    },
    "07_less_memory": {
        "65504": torch.finfo(torch.float16).max,
        "160": 32 * 5,
    },
    "08_three_d_parallelism": {"6200": 156e12 / 25e9, "6144": 3 * 2048, "18": 2 + 4 + 12},
    "09_long_context": {"46": idle_of("zigzag", documents=3)},
    "10_experts": {"10.7": 671e9 * 16 / 1e12},
}


@dataclass(frozen=True)
class Number:
    """A number of a text, with the words around it."""

    text: str
    near: str
    united: bool  # whether a unit follows

    @property
    def value(self) -> float:
        return float(self.text.replace(",", ""))

    def equals(self, found: float) -> bool:
        """Whether what was found is this number, at the digits that the text has."""
        decimals = len(self.text.partition(".")[2])
        scales = _SCALES if self.united else (1.0,)
        return any(round(found * scale, decimals) == self.value for scale in scales)


def numbers_of(paragraph: str) -> list[Number]:
    for name in _NAMES:
        paragraph = re.sub(name, " ", paragraph)
    found = []
    for match in _NUMBER.finditer(paragraph):
        united = bool(_UNIT.match(paragraph, match.end()))
        near = " ".join(paragraph[max(0, match.start() - 40) : match.end() + 30].split())
        number = Number(match.group(), near, united)
        percent = paragraph[match.end() :].lstrip().startswith("%")
        if number.value > _SMALL or "." in number.text or percent:
            found.append(number)
    return found


def shown_numbers(texts) -> set[float]:
    found = (m.replace(",", "").replace("_", "") for t in texts for m in _IN_CODE.findall(t))
    return {float(number) for number in found}


def texts_of(notebook) -> list[str]:
    texts = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            texts.append(cell.source)
            for output in cell.outputs:
                data = output.get("data", {})
                texts += [output.get("text", ""), output.get("evalue", "")]
                texts += [str(data.get(kind, "")) for kind in ("text/plain", "text/html")]
    return texts


def paragraphs_of(notebook) -> list[str]:
    """Of all sections but the reflections, an entry of a list for itself."""
    found, reflecting = [], False
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            continue
        for paragraph in re.split(r"\n\s*\n|\n(?=- )", cell.source):
            if re.match(r"## ", paragraph):
                reflecting = "Reflection" in paragraph
            if not reflecting:
                found.append(paragraph)
    return found


def unaccounted(name, notebook) -> list[Number]:
    """Numbers that stand nowhere but in the text."""
    shown = shown_numbers(texts_of(notebook))
    given = {**GIVEN[""], **GIVEN.get(name, {}), **WORKED_OUT.get(name, {})}
    return [
        number
        for paragraph in paragraphs_of(notebook)
        if not _CITED.search(paragraph)
        for number in numbers_of(paragraph)
        if number.text not in given and not any(map(number.equals, shown))
    ]


# ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def notebooks(root):
    """The solutions: outputs as stored, text as written. (Other tests ask for those not built.)"""
    new_cell = {"markdown": nbformat.v4.new_markdown_cell}
    found = {}
    for name, lesson in Course(root, all_exercises()).lessons.items():
        file = root / "solutions" / f"{name}.ipynb"
        if not file.exists():
            continue
        stored = nbformat.read(file, as_version=4)
        cells = [cell for cell in stored.cells if cell.cell_type == "code"]
        cells += [
            new_cell.get(cell.kind, nbformat.v4.new_code_cell)(cell.source) for cell in lesson.cells
        ]
        found[name] = nbformat.v4.new_notebook(cells=cells)
    return found


def test_every_number_in_the_text_is_shown_cited_given_or_worked_out(notebooks):
    lost = [
        f"{name}: {number.text} in '{number.near}'"
        for name, notebook in notebooks.items()
        for number in unaccounted(name, notebook)
    ]
    assert lost == []


def test_what_is_worked_out_comes_to_what_the_text_says():
    for name, numbers in WORKED_OUT.items():
        for text, value in numbers.items():
            assert math.isclose(float(text.replace(",", "")), value, rel_tol=0.02), (name, text)


_PART = r"[\d.,()+\-*/·\s]*?"
_SUM = re.compile(
    rf"(?<![\w.)^])(?<![%·*+] )([\d(]{_PART}[+\-*/·]{_PART})\s*=\s*([\d.,]*\d(?: %)?)"
)


def _calculated(formula: str) -> float:
    tree = ast.parse(formula, mode="eval")
    allowed = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)
    assert all(isinstance(node, allowed) for node in ast.walk(tree)), formula
    return float(eval(compile(tree, "a lesson", "eval")))


def sums_of(text: str) -> list[tuple[str, float, float]]:
    """What is worked out in a text: the sum, what it comes to, and what the text says."""
    found = []
    for formula, said in _SUM.findall(text):
        plain = " ".join(re.sub(r"(?<=\d),(?=\d{3})", "", formula).replace("·", "*").split())
        if plain.count("(") == plain.count(")"):
            percent = 100 if "%" in said else 1
            result = float(said.replace(",", "").removesuffix(" %"))
            found.append((plain, percent * _calculated(plain), result))
    return found


def test_sums_in_the_text_are_right(notebooks):
    count = 0
    for name, notebook in notebooks.items():
        for cell in notebook.cells:
            for formula, value, said in sums_of(cell.source) if cell.cell_type != "code" else ():
                count += 1
                decimals = len(f"{said:.10f}".rstrip("0").partition(".")[2])
                near = abs(round(value, decimals) - said) < 1e-9 or math.isclose(
                    value, said, rel_tol=0.01
                )
                assert near, f"{name}: {formula} = {value}, and the text says {said}"
    assert count >= 10


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("It takes 47 ms.", ["47"]),
        ("It takes 23 ms, as in 2021, section 31.", []),  # 0.023 is shown below
        ("A third: 33.3 % of it.", []),
        ("Half of it: 34.3 % of it.", ["34.3"]),
        ("Of 7 ranks rank 12 is slow (25 minutes).", []),
        ("47 ms, as Li et al. measured.", []),
        ("## 3. Section\n\n- 1,234 bytes\n- 4,321 bytes", ["4,321"]),
    ],
)
def test_numbers_out_of_nowhere_are_found(text, lost):
    cell = nbformat.v4.new_code_cell("wait = 0.023\nshare = 0.333\nsize = 1_234")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text), cell])
    assert [number.text for number in unaccounted("a lesson", notebook)] == lost


def test_a_wrong_sum_is_found():
    (right, wrong) = sums_of("Then 2·7/8 = 1.75 tensors, and 24 · 3 + 7 · 3 = 94 steps.")
    assert right[1] == right[2]
    assert wrong[1] == 93
    assert wrong[2] == 94
