"""Submissions that try to get points without an answer, or to harm: they gain nothing.

All are handed in at once, as a teacher would find them. Each has an honest answer to another
exercise, which must still count.
"""

import http.server
import os
import threading
from pathlib import Path
from typing import Any

import nbformat
import pytest

from course_lib.checks.examine import examine_briefly
from course_lib.checks.sandbox import grader
from course_lib.checks.sandbox.isolation import hidden_from_others
from course_lib.checks.sandbox.resource_limits import Limits
from course_lib.checks.verdict import Verdict
from course_lib.classroom.grading.batch import Graded, grade
from course_lib.classroom.grading.points import FAILED
from course_lib.classroom.grading.reports import write_reports
from course_lib.classroom.grading.settings import Settings
from course_lib.classroom.untouched_notebooks import untouched
from tests.classroom import tiny
from tests.classroom.readable_python import with_readable_python

TOKEN = "a-token-of-the-teacher"
# {root}: the course with its solutions. {out}: the report. {outside}: a folder anybody may write
# to. {port}: a server on this machine.
HOSTILE = {
    "prints that it passed": "print('double: passed. 2 cases')\ndef double(x):\n    return None",
    "leaves as if all were well": "import os\nos._exit(0)",
    "leaves in the function": "def double(x):\n    import os\n    os._exit(0)",
    "exits in the function": "import sys\ndef double(x):\n    sys.exit(0)",
    "replaces the check": """
import course_lib, builtins
course_lib.check = lambda *_: print("passed")
from course_lib.checks import run_answer
run_answer.collect_job = lambda *_: None
def double(x): return 0""",
    "equals everything": """
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
def double(x): return Equal()""",
    "is a number that equals everything": """
class Equal(int):
    def __eq__(self, other): return True
    def __mul__(self, other): return self
def double(x): return Equal(3)""",
    "reads the solutions": """
import glob
def double(x):
    for file in glob.glob("{root}/**/*", recursive=True) + glob.glob("{root}*"):
        exec(open(file).read())
        return added(x, x)""",
    "imports the checks": """
def double(x):
    from course_lib.checks.registry import all_exercises
    return 2 * x""",
    "imports the techniques": """
def double(x):
    from course_lib.techniques.collectives import ring_all_reduce
    return 2 * x""",
    "writes to the report": """
import os, pathlib
def double(x):
    os.makedirs("{out}/verdicts", exist_ok=True)
    pathlib.Path("{out}/scores.csv").write_text("student,points")
    return 0""",
    "writes outside": """
import pathlib
def double(x):
    pathlib.Path("{outside}/written").write_text("here")
    return 0""",
    "stays in the background": """
import os, time
def double(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
            os._exit(0)
    return 0""",
    "forks without end": """
import os
def double(x):
    while True:
        os.fork()""",
    "starts threads without end": """
import threading
def double(x):
    while True:
        threading.Thread(target=threading.Event().wait, daemon=True).start()""",
    "fills the disk": """
def double(x):
    with open("big", "wb") as file:
        while True:
            file.write(bytes(2**20))""",
    "fills the disk with small files": """
def double(x):
    for number in range(10**6):
        open(f"file{{number}}", "w").write("x")""",
    "takes all memory": "def double(x):\n    return len([0] * 10**10)",
    "takes all memory slowly": """
def double(x):
    kept = []
    while True:
        kept.append(bytearray(2**25))""",
    "takes all memory in many processes": """
import os, time
def double(x):
    for _ in range(6):
        if os.fork() == 0:
            kept = bytearray(2**28)
            for place in range(0, 2**28, 4096):
                kept[place] = 1
            time.sleep(60)
    time.sleep(60)""",
    "never returns": "def double(x):\n    while True:\n        pass",
    "never defines": "while True:\n    pass",
    "swallows every exception": """
import time
def double(x):
    while True:
        try:
            time.sleep(1)
        except BaseException:
            pass""",
    "asks for input": "def double(x):\n    return int(input())",
    "prints without end": "def double(x):\n    while True:\n        print('x' * 10**6)",
    "kills everything": "import os, signal\ndef double(x):\n    os.kill(-1, signal.SIGKILL)",
    "kills its parents": """
import os, signal
def double(x):
    for pid in range(2, 40):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    return 0""",
    "deletes everything": """
import shutil
shutil.rmtree("{outside}", ignore_errors=True)
shutil.rmtree("{root}", ignore_errors=True)
shutil.rmtree("/", ignore_errors=True)
def double(x): return 0""",
    "writes into every pipe": """
import os
for fd in range(3, 64):
    try:
        os.write(fd, b'\\0' * 7 + b'\\7defined' + b'x' * 100)
    except OSError:
        pass
def double(x): return 0""",
    "announces a huge message": """
import os
for fd in range(3, 64):
    try:
        os.write(fd, b'\\xff' * 8)
    except OSError:
        pass
def double(x): return 0""",
    "returns a pickle that runs": """
import os
class Bad:
    def __reduce__(self): return (os.system, ("touch {outside}/pickled",))
def double(x): return Bad()""",
    "asks a server on this machine": """
import urllib.request
def double(x):
    return urllib.request.urlopen("http://127.0.0.1:{port}/", timeout=2).read()""",
    "reads the grader's memory": """
import glob
def double(x):
    text = b""
    for file in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
        try:
            text += open(file, "rb").read()
        except OSError:
            pass
    return "seen: " + text.decode(errors="replace")""",
    "wants its rights back": """
import ctypes, os
def double(x):
    libc = ctypes.CDLL(None)
    for call in (lambda: os.setuid(0), lambda: os.chroot("/proc/1/root")):
        try:
            call()
        except OSError:
            pass
    libc.umount2(b"/sandbox", 2)
    libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)
    return "user " + str(os.getuid())""",
    "crashes the interpreter": "import ctypes\ndef double(x):\n    ctypes.string_at(0)",
    "recurses without end": "def double(x):\n    return double(x)",
    "raises what nobody catches": """
class Odd(BaseException):
    def __str__(self): raise SystemExit(0)
def double(x): raise Odd""",
    "writes a page into the report": """
def double(x):
    raise ValueError("<script>alert(1)</script>")""",
    "returns what cannot be put into words": """
class Odd:
    def __repr__(self): raise SystemExit(0)
    __class__ = property(lambda self: int)
def double(x): return Odd()""",
}


class _Server(http.server.BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module", params=[True, False], ids=["sandbox", "limits only"])
def batch(request, tmp_path_factory):
    """All of them graded; (reports by name, places). Without namespaces, those for limits."""
    folder, isolated = tmp_path_factory.mktemp("hostile"), request.param

    def work() -> tuple[Graded, dict[str, Any]]:
        return _graded(folder, isolated)

    hidden = not isolated and os.geteuid() == 0 and hidden_from_others()
    graded, places = with_readable_python(work) if hidden else work()
    if isolated and not graded.isolated:
        pytest.skip("this system has no namespaces to give")
    return {report.student: report for report in graded.reports}, places


def _graded(folder: Path, isolated: bool) -> tuple[Graded, dict[str, Any]]:
    course = tiny.write_course(folder / "course")
    out, outside = folder / "report", folder / "outside"
    outside.mkdir(mode=0o777)
    outside.chmod(0o777)
    (outside / "precious").write_text("precious")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    places = {"root": course.root, "out": out, "outside": outside, "port": server.server_port}
    places["first_user"] = 2**20 + 256 * os.getpid()  # other tests grade beside this one
    names = HOSTILE if isolated else _LIMITED
    for name in names:
        answer = HOSTILE[name].strip("\n").format(**places)
        notebook = tiny.answered(course.root, double=answer, exchange=tiny.ANSWERS["exchange"])
        (folder / "in" / name).mkdir(parents=True)
        nbformat.write(notebook, folder / "in" / name / "01_tiny.ipynb")
    os.environ["TEACHERS_TOKEN"] = TOKEN
    out_of_time = vars(Verdict)["out_of_time"].fget
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grader, "FIRST_USER", places["first_user"])
        patch.setattr(grader, "_DEFINE_SECONDS", 6.0)
        patch.setattr(grader, "_MORE_SECONDS", 8.0)
        patch.setattr(grader, "examine", examine_briefly)
        # Only the honest answers have a second go where the machine was busy.
        honest = property(lambda verdict: _is_honest(verdict) and out_of_time(verdict))
        patch.setattr(Verdict, "out_of_time", honest)
        limits = Limits(memory=2**30, seconds=20, processes=150, disk=2**26)
        settings = Settings(limits=limits, isolated=None if isolated else False, jobs=4)
        graded = grade(folder / "in", out, untouched(course.root), tiny.EXERCISES, settings)
    write_reports(graded, out)
    del os.environ["TEACHERS_TOKEN"]
    server.shutdown()
    server.server_close()
    return graded, places


def _is_honest(verdict: Verdict) -> bool:
    return verdict.exercise.name == "exchange"


_LIMITED = (
    "leaves as if all were well",
    "stays in the background",
    "forks without end",
    "fills the disk",
    "takes all memory slowly",
    "never returns",
    "writes to the report",
)


def test_there_are_enough_of_them():
    assert len(HOSTILE) >= 20


def test_nothing_is_gained_and_nobody_else_loses(batch):
    reports, _ = batch
    for name, report in reports.items():
        double, _, exchange = report.results
        assert (double.status, double.points) == (FAILED, 0), name
        assert double.message, name
        assert exchange.points == 4, (name, exchange.message)


def test_nothing_outside_is_touched(batch):
    reports, places = batch
    if len(reports) < len(HOSTILE):
        pytest.skip("without namespaces a run may write where everybody may")
    assert [path.name for path in places["outside"].iterdir()] == ["precious"]
    assert sorted(path.name for path in places["root"].iterdir()) == ["notebooks", "solutions"]
    assert (places["out"] / "scores.csv").read_text().startswith("student,double,quadruple")
    assert _Server.asked == 0


def test_nothing_is_left_running(batch):
    _, places = batch
    users = {str(places["first_user"] + number) for number in range(256)}
    if os.geteuid() != 0:
        pytest.skip("runs have the same user as the tests")
    left = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(
                line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line
            )
        except OSError:
            continue
        if fields["Uid"].split()[0] in users:
            left.append(fields["Name"])
    assert left == []


def test_reports_show_no_secret_and_no_page_of_theirs(batch):
    reports, places = batch
    pages = [page.read_text() for page in (places["out"] / "students").iterdir()]
    assert not any(TOKEN in page or "<script>" in page for page in pages)
    if "writes a page into the report" in reports:
        assert any("&lt;script&gt;" in page for page in pages)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("leaves as if all were well", "exit code 0"),
        ("takes all memory", "MemoryError"),
        ("takes all memory slowly", "emory"),
        ("takes all memory in many processes", "took more memory than it may"),
        ("fills the disk", "OSError"),
        ("never returns", "had not finished after 5 s"),
        ("never defines", "did not finish in time"),
        ("imports the techniques", "ModuleNotFoundError"),
        ("asks a server on this machine", "not permitted"),
        ("exits in the function", "left with sys.exit"),
    ],
)
def test_the_reason_can_be_read(batch, name, words):
    reports, _ = batch
    if len(reports) == len(HOSTILE):
        assert words in " ".join(reports[name].results[0].message.split())
