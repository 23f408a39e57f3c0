"""What teachers and students read: tables for machines, pages for people, a folder of oddities."""

import html
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from .batch import Graded
from .points import PASSED, Report, Result
from .score_tables import gradescope, write_tables
from .similarity import Similar

NOT_ISOLATED = (
    "This system gave answers no file system and no network of their own: they could read what "
    "everybody can read on this machine, and reach its network, and what they sent was counted "
    "only by themselves."
)
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } td, th { padding: .3em .8em; text-align: left;
border-bottom: 1px solid #ccc; vertical-align: top; } td.number { text-align: right; }
pre { background: #f4f4f4; padding: .8em; overflow-x: auto; font-size: 14px; }
th.upright { writing-mode: vertical-rl; transform: rotate(180deg); vertical-align: bottom; }
.mark { font-weight: bold; } .note { color: #555; }
"""
_MARKS = {"passed": "✓", "partly passed": "◐", "failed": "✗", "not attempted": "○", "missing": "–"}
# What XML cannot hold at all.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def write_reports(graded: Graded, out: Path) -> None:
    """Write tables, pages, and the folders students, odd and gradescope into `out`."""
    names = _file_names(report.student for report in graded.reports)
    for folder in ("students", "odd", "gradescope"):
        shutil.rmtree(out / folder, ignore_errors=True)
        (out / folder).mkdir(parents=True)
    _write(out / "scores.json", json.dumps(_plain(graded), indent=1))
    _write(out / "junit.xml", _junit(graded))
    _write(out / "index.html", _overview(graded, names))
    write_tables(graded, out)
    for report in graded.reports:
        _write(out / "gradescope" / f"{names[report.student]}.json", gradescope(report))
        _write(out / "students" / f"{names[report.student]}.html", _student_page(report))
        if report.odd or report.notes:
            _write_odd(report, out / "odd" / names[report.student])


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="replace")


def _file_names(students: Iterable[str]) -> dict[str, str]:
    """A file name for each student, whatever the student's name is."""
    names: dict[str, str] = {}
    for student in students:
        stem = re.sub(r"[^\w-]+", "_", student)[:80].strip("_") or "student"
        while stem.lower() in {name.lower() for name in names.values()}:
            stem += "_"
        names[student] = stem
    return names


def _plain(graded: Graded) -> list[dict]:
    return [
        {
            "student": report.student,
            "points": report.points,
            "maximum": report.maximum,
            "notes": report.all_notes(),
            "exercises": [
                {
                    "lesson": r.lesson,
                    "exercise": r.exercise,
                    "status": r.status,
                    "points": r.points,
                    "maximum": r.maximum,
                    "message": r.message,
                    "earlier": [
                        {"status": e.status, "points": e.points, "maximum": e.maximum}
                        for e in r.earlier
                    ],
                }
                for r in report.results
            ],
        }
        for report in graded.reports
    ]


def _junit(graded: Graded) -> str:
    """A suite for each student, a case for each exercise."""
    suites = ElementTree.Element("testsuites")
    for report in graded.reports:
        failures = [r for r in report.results if r.is_wrong]
        skipped = [r for r in report.results if not r.is_wrong and r.status != PASSED]
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=_xml(report.student),
            tests=str(len(report.results)),
            failures=str(len(failures)),
            skipped=str(len(skipped)),
        )
        for result in report.results:
            case = ElementTree.SubElement(
                suite, "testcase", classname=result.lesson, name=result.exercise
            )
            if result in failures:
                first = result.message.split("\n")[0]
                ElementTree.SubElement(case, "failure", message=_xml(first)).text = _xml(
                    result.message
                )
            elif result in skipped:
                ElementTree.SubElement(case, "skipped", message=result.status)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)


def _xml(text: str) -> str:
    return _CONTROL.sub("?", text)


# ---------------------------------------------------------------------------------------------


def _page(title: str, body: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{_(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>{_(title)}</h1>\n{body}\n</body></html>\n"
    )


def _(text: str) -> str:
    return html.escape(text)


def _student_page(report: Report) -> str:
    parts = [f"<p>{report.points:g} of {report.maximum:g} points.</p>"]
    parts += [f'<p class="note">{_(note)}</p>' for note in report.all_notes()]
    for lesson in dict.fromkeys(result.lesson for result in report.results):
        results = [result for result in report.results if result.lesson == lesson]
        parts.append(f"<h2>{_(lesson)}</h2>\n<table>")
        parts += [
            f'<tr><td class="mark">{_MARKS[r.status]}</td><td><code>{_(r.exercise)}</code></td>'
            f'<td>{r.status}</td><td class="number">{r.points:g} of {r.maximum:g}</td>'
            f'<td class="note">{_before(r)}</td></tr>'
            for r in results
        ]
        parts.append("</table>")
        for result in results:
            if result.message:
                answer = report.answers.get(result.exercise, "")
                parts.append(
                    f"<h3><code>{_(result.exercise)}</code></h3>\n<pre>{_(result.message)}</pre>\n"
                    f"<details><summary>the answer</summary><pre>{_(answer)}</pre></details>"
                )
    return _page(report.student, "\n".join(parts))


def _overview(graded: Graded, names: dict[str, str]) -> str:
    first = graded.reports[0]
    sandbox = (
        "Answers ran in file systems and networks of their own, and what crossed between their "
        "ranks was counted outside of them."
        if graded.isolated
        else NOT_ISOLATED
    )
    count = f"{len(graded.reports)} submission{'s' * (len(graded.reports) > 1)}"
    parts = [f"<p>{count}, {first.maximum:g} points to be had. {sandbox}</p>"]
    parts.append("<table><tr><th>student</th><th>points</th>")
    parts += [f'<th class="upright">{_(result.exercise)}</th>' for result in first.results]
    parts.append("<th>notes</th></tr>")
    for report in graded.reports:
        cells = "".join(f"<td>{_MARKS[result.status]}</td>" for result in report.results)
        link = f'<a href="students/{names[report.student]}.html">{_(report.student)}</a>'
        parts.append(
            f'<tr><td>{link}</td><td class="number">{report.points:g}</td>{cells}'
            f"<td>{len(report.all_notes()) or ''}</td></tr>"
        )
    parts.append("</table>\n<h2>By exercise</h2>\n<table><tr><th>exercise</th><th>passed</th>")
    parts.append("<th>the commonest failures</th></tr>")
    for index, result in enumerate(first.results):
        column = [report.results[index] for report in graded.reports]
        passed = sum(r.status == PASSED for r in column)
        common = Counter(_cause(r) for r in column if r.is_wrong).most_common(3)
        failures = "<br>".join(f"{count} × {_(cause)}" for cause, count in common)
        parts.append(
            f"<tr><td><code>{_(result.exercise)}</code></td>"
            f'<td class="number">{passed} of {len(column)}</td><td>{failures}</td></tr>'
        )
    parts.append("</table>")
    parts += _alike(graded.similar)
    return _page("Overview", "\n".join(parts))


def _before(result: Result) -> str:
    """What earlier answers were worth."""
    told = [f"{e.status}, {e.points:g} of {e.maximum:g}" for e in result.earlier]
    return f"earlier answers: {'; '.join(told)}" if told else ""


def _alike(similar: list[Similar]) -> list[str]:
    """Who has the same answers: for a person to look at, on no student's page."""
    if not similar:
        return []
    rows = [
        f"<tr><td>{'<br>'.join(map(_, each.students))}</td>"
        f"<td><code>{_(', '.join(each.exercises))}</code></td></tr>"
        for each in similar
    ]
    head = "<table><tr><th>students</th><th>exercises</th></tr>"
    why = (
        "Up to names, comments and layout, and not the course's own. Short answers are often the "
        "same by themselves: look at them before you think anything of it."
    )
    return ["<h2>The same answers</h2>", f'<p class="note">{why}</p>', head, *rows, "</table>"]


def _cause(result: Result) -> str:
    """The likely cause in a message, or else how the run ended."""
    for field in ("likely", "why"):
        if found := re.search(rf"^  {field}\s+(.*(?:\n {{12}}.*)*)", result.message, re.M):
            return " ".join(found[1].split())
    lines = result.message.split("\n")
    return lines[2].strip() if len(lines) > 2 else lines[0]


def _write_odd(report: Report, folder: Path) -> None:
    """The odd files of a student, and a text that says what is odd about each."""
    folder.mkdir(parents=True)
    for number, (path, content) in enumerate(
        {path: content for path, _, content in report.odd if content is not None}.items(), start=1
    ):
        name = re.sub(r"[^\w.-]+", "_", PurePosixPath(path).name)[-80:]
        (folder / f"{number}_{name}").write_bytes(content)
    _write(folder / "reasons.txt", "\n".join(report.all_notes()) + "\n")
