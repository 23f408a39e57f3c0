"""What happens in a real Jupyter kernel, where most of the trouble is."""

import re
import time

import psutil
import pytest

from tests.ranks.kernel import Kernel, kernel, until


@pytest.fixture(scope="module")
def shared() -> Kernel:
    with kernel() as running:
        running.run("import torch, torch.distributed as dist\nfrom course_lib import run_ranks")
        running.run("%load_ext course_lib")
        yield running


def test_functions_of_cells(shared: Kernel) -> None:
    shared.run(
        "def scale(x): return x * 10\n"
        "class Net(torch.nn.Linear):\n"
        "    pass\n"
        "def step(k):\n"
        "    def inner(): return scale(dist.get_rank())\n"
        "    return inner() + k, type(Net(1, 1)).__name__"
    )
    assert shared.run("list(run_ranks(step, 2, 1))").result == "[(1, 'Net'), (11, 'Net')]"
    shared.run("def scale(x): return x * 100")
    assert shared.run("list(run_ranks(step, 2, 1))").result == "[(1, 'Net'), (101, 'Net')]"
    assert shared.run("isinstance(run_ranks(lambda: Net(1, 1), 1)[0], Net)").result == "True"


def test_after_torch_has_used_threads(shared: Kernel) -> None:
    work = "(torch.randn(1500, 1500) @ torch.randn(1500, 1500)).sum()"
    shared.run(f"torch.set_num_threads(2); {work}")
    assert shared.run(f"len(run_ranks(lambda: {work}, 2))").result == "2"
    assert shared.run("torch.get_num_threads()").result == "2"


def test_an_error_is_one_short_text_that_names_the_cell(shared: Kernel) -> None:
    shared.run(
        "def f():\n"
        "    if dist.get_rank() == 1:\n"
        "        raise ValueError('why')\n"
        "    dist.barrier()"
    )
    out = shared.run("run_ranks(f, 2)")
    assert out.error == "RankError"
    assert out.stderr == ""
    assert re.search(
        r"rank 1 raised ValueError: why\n    in cell \[\d+\], line 3:  raise ValueError\('why'\)",
        out.traceback,
    )
    assert "run_ranks.py" not in out.traceback
    assert len(out.traceback.splitlines()) < 12


def test_magic(shared: Kernel) -> None:
    shared.run("base = 5")
    out = shared.run(
        "%%ranks 3 -o kept\nx = torch.tensor(base + dist.get_rank())\nprint('mine', x.item())\n"
        "dist.all_reduce(x)\nx"
    )
    assert out.stdout.splitlines() == [
        line for r in range(3) for line in (f"[rank {r}] mine {5 + r}", f"[rank {r}] → tensor(18)")
    ]
    assert shared.run("[int(v) for v in kept]").result == "[18, 18, 18]"


def test_magic_names_the_line_that_the_learner_sees(shared: Kernel) -> None:
    out = shared.run("%%ranks 2\n\nx = 1\nraise ValueError(x)")
    number = shared.run("len(In) - 2").result  # of the cell before this one
    assert f"in cell [{number}], line 4:  raise ValueError(x)" in out.traceback
    assert "say how many ranks" in shared.run("%%ranks\n1").stderr


def test_a_bar_leaves_nothing(shared: Kernel) -> None:
    out = shared.run(
        "def slow():\n"
        "    import time\n"
        "    from course_lib.ranks import report_step\n"
        "    for i in range(16):\n"
        "        time.sleep(0.1); report_step(i + 1, 16)\n"
        "run_ranks(slow, 2);"
    )
    assert out.stdout == ""
    texts = [bundle.get("text/plain", "") for bundle in out.displays]
    assert texts[0] == ""
    assert texts[-1] == ""
    assert any(re.search(r"█+░* step 1\d of 16", text) for text in texts)


def test_interrupt_leaves_no_process(shared: Kernel) -> None:
    message = shared.start(
        "def stuck():\n"
        "    import subprocess\n"
        "    subprocess.Popen(['sleep', '600'])\n"
        "    dist.recv(torch.ones(1), 1 - dist.get_rank())\n"
        "run_ranks(stuck, 2, timeout=600, observe=False)"
    )
    assert until(lambda: sum(p.name() == "sleep" for p in shared.ranks()) == 2)
    started = time.monotonic()
    shared.interrupt()
    assert shared.finish(message).error == "RankInterrupt"
    assert time.monotonic() - started < 3
    assert shared.ranks() == []
    assert shared.run("len(run_ranks(dist.get_rank, 2))").result == "2"


def test_two_notebooks_at_once_of_which_one_is_killed(shared: Kernel, tmp_path) -> None:
    with kernel(TMPDIR=str(tmp_path)) as victim:
        code = (
            "import torch, torch.distributed as dist\n"
            "from course_lib import run_ranks\n"
            "def f():\n    x = torch.ones(1); dist.all_reduce(x); return x.item()\n"
            "[sum(run_ranks(f, 4, timeout=60)) for _ in range(5)]"
        )
        messages = [(k, k.start(code)) for k in (victim, shared)]
        answers = [k.finish(message, 120) for k, message in messages]
        assert [answer.result for answer in answers] == ["[16.0, 16.0, 16.0, 16.0, 16.0]"] * 2
        victim.start(
            "def stuck():\n"
            "    import subprocess\n"
            "    subprocess.Popen(['sleep', '600'])\n"
            "    dist.recv(torch.ones(1), 1 - dist.get_rank())\n"
            "run_ranks(stuck, 3, timeout=600, observe=False)"
        )
        assert until(lambda: sum(p.name() == "sleep" for p in victim.ranks()) == 3)
        family = victim.descendants()
        assert len(family) == 7  # launcher, ranks and their children
        victim.kill()
        _, alive = psutil.wait_procs(family, timeout=5)
        assert alive == []
        assert list(tmp_path.glob("ranks-*")) == []
        assert shared.run("sum(run_ranks(f, 4))").result == "16.0"


@pytest.mark.parametrize(
    "cell",
    ["run_ranks(ping_pong, 2, timeout=600)", "%%ranks 2 -t 600\nping_pong()", "check(ping_pong)"],
)
def test_an_interrupt_tells_what_a_time_out_tells(shared: Kernel, tmp_path, cell: str) -> None:
    shared.run(
        "import pathlib, time\n"
        "from course_lib import check\n"
        f"there = pathlib.Path({str(tmp_path)!r}, 'there')\n"
        "def ping_pong(*args):\n"
        "    dist.barrier()\n"
        "    if dist.get_rank() == 0:\n"
        "        dist.recv(torch.ones(1), 1)\n"
        "    there.touch(); time.sleep(600)\n"
    )
    message = shared.start(cell)
    assert until((tmp_path / "there").exists)
    shared.interrupt()
    out = shared.finish(message)
    assert out.traceback.startswith("KeyboardInterrupt: ranks 0 and 1 had not finished when")
    assert "rank 0  waits to receive 1 float32 from rank 1" in out.traceback
    assert "time.sleep(600)" in out.traceback
    assert "course_lib" not in out.traceback
    assert any("course-view" in shown.get("text/html", "") for shown in out.displays)
    assert shared.ranks() == []
