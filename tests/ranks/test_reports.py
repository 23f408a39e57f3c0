"""What a stuck or broken run says: the ranks, their lines, the reason and the way out."""

import os
import re
import signal
import time

import pytest
import torch
import torch.distributed as dist

from course_lib.checks import check
from course_lib.ranks import RankError, RankInterrupt, RankTimeout, collect, run_ranks
from course_lib.ranks.hang_detection import HangDetector
from course_lib.ranks.wording import ranks_text
from tests.ranks.leaping_clock import SECONDS, leap_when, only_one_runs


def report_of(fn, world_size: int = 2, kind: type = RankError, timeout: float = 20.0) -> str:
    with pytest.raises(kind) as caught:
        collect(fn, world_size, timeout=timeout)
    assert type(caught.value) is kind
    return joined(caught.value.report)


def joined(text: str) -> str:
    """The text as if there were room for every line."""
    text = re.sub(r"(, line \d+)\n {10,}", r"\1:  ", text)
    return re.sub(r"\n {5,9}(?=\S)", " ", text)


def line_of(fn, text: str) -> str:
    """ "test_reports.py, line N" of the line of `fn` that holds `text`."""
    import inspect

    lines, first = inspect.getsourcelines(fn)
    number = first + next(i for i, line in enumerate(lines) if text in line)
    return f"test_reports.py, line {number}"


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_both_send_first(size: int) -> None:
    def both_send():
        other = 1 - dist.get_rank()
        dist.send(torch.ones(size), other)
        dist.recv(torch.ones(size), other)

    report = report_of(both_send, kind=RankTimeout)
    for rank in (0, 1):
        assert re.search(
            rf"rank {rank}  waits to send {size} float32 to rank {1 - rank} +"
            + line_of(both_send, "dist.send")
            + r":  dist.send\(torch.ones\(size\), other\)",
            report,
        )
    assert "ranks 0 and 1 both send first" in report
    assert "dist.isend" in report


def test_three_send_in_a_ring() -> None:
    def ring():
        rank, n = dist.get_rank(), dist.get_world_size()
        dist.send(torch.ones(2), (rank + 1) % n)
        dist.recv(torch.ones(2), (rank - 1) % n)

    assert "ranks 0, 1 and 2 all send first" in report_of(ring, 3, RankTimeout)


def test_both_receive_first() -> None:
    def both_receive():
        dist.recv(torch.ones(1), 1 - dist.get_rank())

    report = report_of(both_receive, kind=RankTimeout)
    assert "both wait to receive first, so that nobody comes to send" in report


def test_a_ring_with_the_wrong_neighbour() -> None:
    def wrong():
        right = (dist.get_rank() + 1) % dist.get_world_size()
        sending = dist.isend(torch.ones(1), right)
        dist.recv(torch.ones(1), right)
        sending.wait()

    report = report_of(wrong, 3, RankTimeout)
    assert "rank 0 waits for rank 1, but rank 1 has sent to rank 2" in report
    assert "it receives from r - 1" in report


def test_receive_from_a_rank_that_has_returned() -> None:
    def early():
        if dist.get_rank() == 1:
            dist.send(torch.ones(1), 0)
        else:
            dist.recv(torch.ones(1), 1)
            dist.recv(torch.ones(1), 1)

    report = report_of(early, kind=RankTimeout)
    assert report.startswith("hang: rank 0 waits for something that cannot come any more.")
    assert "rank 1  has returned" in report
    assert "rank 0 waits for a message from rank 1, but rank 1 has returned" in report
    assert "rank 1 has sent it one message, and this is its 2nd receive" in report


def test_an_irecv_waits_at_its_wait() -> None:
    def waits():
        if dist.get_rank() == 0:
            work = dist.irecv(torch.ones(1), 1)
            work.wait()

    report = report_of(waits, kind=RankTimeout)
    assert line_of(waits, "work.wait()") in report
    assert "rank 0 waits for a message from rank 1" in report


def test_what_was_noted_before_the_hang_is_told() -> None:
    def twice():
        if dist.get_rank() == 0:
            dist.send(torch.ones(1), 1)
        else:
            work = dist.irecv(torch.ones(1), 0)
            work.wait()
            work.wait()

    report = report_of(twice, kind=RankTimeout, timeout=5)
    assert "Warning: " in report
    assert report.count("waits a second time for the irecv from rank 0") == 1
    assert "Every recv needs a send" not in report


def test_different_tags() -> None:
    def tags():
        if dist.get_rank() == 0:
            dist.send(torch.ones(1), 1, tag=5)
        else:
            dist.recv(torch.ones(1), 0, tag=6)

    assert "sends with tag 5, rank 1 receives with tag 6" in report_of(tags, kind=RankTimeout)


def test_one_rank_skips_the_collective() -> None:
    def skip():
        if dist.get_rank() != 1:
            dist.all_reduce(torch.ones(2))

    report = report_of(skip, 3, RankTimeout)
    assert (
        "ranks 0 and 2 wait in all_reduce for all ranks of the group, but rank 1 has returned"
        in report
    )


def test_different_operations() -> None:
    def differ():
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(4))
        else:
            dist.broadcast(torch.ones(4), 0)

    report = report_of(differ)
    assert "the 1st collective does not have the same operation everywhere" in report
    assert "rank 0 called all_reduce of 4 float32" in report
    assert "rank 1 called broadcast of 4 float32, root 0" in report


@pytest.mark.parametrize(
    ("make", "what", "left", "right"),
    [
        (lambda rank: torch.ones(4 + 2 * rank), "size", "4 float32", "6 float32"),
        (
            lambda rank: torch.ones(4, dtype=(torch.float32, torch.float64)[rank]),
            "dtype",
            "4 float32",
            "4 float64",
        ),
    ],
)
def test_different_tensors(make, what: str, left: str, right: str) -> None:
    def differ():
        dist.all_reduce(torch.ones(1))
        dist.all_reduce(make(dist.get_rank()))
        dist.barrier()

    report = report_of(differ)
    assert f"the 2nd collective does not have the same {what} everywhere" in report
    assert f"rank 0 called all_reduce of {left}" in report
    assert f"rank 1 called all_reduce of {right}" in report
    assert line_of(differ, "make(") in report


def test_swapped_order() -> None:
    def swapped():
        a, b = torch.ones(2), torch.ones(3)
        for tensor in (a, b) if dist.get_rank() == 0 else (b, a):
            dist.all_reduce(tensor)

    report = report_of(swapped)
    assert "the 1st collective does not have the same size everywhere" in report


def test_one_rank_raises() -> None:
    def raises():
        if dist.get_rank() == 1:
            raise ValueError("the reason")
        dist.all_reduce(torch.ones(1))

    report = report_of(raises, 4)
    assert report.startswith("rank 1 raised ValueError: the reason\n    in ")
    assert line_of(raises, "raise ValueError") in report
    for rank in (0, 2, 3):
        assert re.search(rf"rank {rank}  waits in all_reduce of 1 float32 .*all_reduce", report)
    assert "closed by peer" not in report


def test_all_ranks_raise_alike() -> None:
    def alike():
        dist.nonsense()

    report = report_of(alike, 3)
    assert report.startswith("ranks 0, 1 and 2 raised AttributeError: ")
    assert report.count("AttributeError") == 1


def test_an_exception_class_that_only_the_ranks_have() -> None:
    def raises():
        class Homemade(Exception):
            def __reduce__(self):
                raise TypeError("cannot be pickled")

        raise Homemade("mine")

    assert "raised Homemade: mine" in report_of(raises, 1)


def test_a_nested_function_shows_who_called_it() -> None:
    def outer():
        inner()

    def inner():
        raise KeyError("x")

    report = report_of(outer, 1)
    assert "in " + line_of(inner, "raise KeyError") in report
    assert "called from " + line_of(outer, "inner()") in report


def test_endless_loop(tmp_path, monkeypatch) -> None:
    def loop():
        if dist.get_rank() == 0:
            while True:
                pass
        dist.barrier()

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    leap_when(monkeypatch, lambda: only_one_runs(tmp_path))
    report = report_of(loop, kind=RankTimeout, timeout=SECONDS)
    assert f"ranks 0 and 1 had not finished after {SECONDS:g} s" in report
    assert "rank 0 waits for nobody" in report
    assert re.search(r"rank 0  is still running .*test_reports.py, line", report)
    assert (
        "rank 1 waits in barrier for all ranks of the group, but rank 0 is still running" in report
    )


def test_asleep_in_a_c_call(tmp_path, monkeypatch) -> None:
    there = tmp_path / "there"

    def sleeps():
        there.touch()
        time.sleep(1e4)

    leap_when(monkeypatch, there.exists)
    report = report_of(sleeps, 1, RankTimeout, timeout=SECONDS)
    assert line_of(sleeps, "time.sleep") in report


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_killed(number: signal.Signals) -> None:
    def killed():
        if dist.get_rank() == 1:
            os.kill(os.getpid(), number)
        dist.all_reduce(torch.ones(1))

    report = report_of(killed, 2)
    assert report.startswith(f"rank 1 was killed by {number.name}")
    if number != signal.SIGKILL:  # which leaves no time to say where
        assert line_of(killed, "os.kill") in report
    assert "rank 0  waits in all_reduce of 1 float32" in report


@pytest.mark.parametrize("code", [0, 3])
def test_left_without_returning(code: int) -> None:
    def leaves():
        if dist.get_rank() == 1:
            os._exit(code)
        dist.barrier()

    report = report_of(leaves, 2)
    assert f"rank 1 left with exit code {code}, without returning" in report


def test_sys_exit_is_not_a_result() -> None:
    def leaves():
        raise SystemExit(0)

    assert "ranks 0 and 1 left with sys.exit" in report_of(leaves, 2)


def test_unobserved_runs_still_name_the_lines(tmp_path, monkeypatch) -> None:
    def both_receive():
        (tmp_path / str(dist.get_rank())).touch()
        dist.recv(torch.ones(1), 1 - dist.get_rank())

    leap_when(monkeypatch, lambda: len(list(tmp_path.iterdir())) == 2)
    with pytest.raises(RankTimeout) as caught:
        collect(both_receive, 2, timeout=SECONDS, observe=False)
    assert caught.value.report.count(line_of(both_receive, "dist.recv")) == 2


def test_receive_from_oneself() -> None:
    report = report_of(lambda: dist.recv(torch.ones(1), src=0), 3, RankTimeout)
    assert report.startswith(
        "deadlock: ranks 0, 1 and 2 wait for something that cannot come any more."
    )
    assert "rank 0 waits for a message of its own" in report


def test_ranks_with_the_same_trouble_share_a_sentence() -> None:
    def wait_for_0():
        if dist.get_rank() > 0:
            dist.recv(torch.ones(1), 0)

    report = report_of(wait_for_0, 4, RankTimeout)
    assert (
        "ranks 1, 2 and 3 wait for a message from rank 0, but rank 0 has returned, and has sent "
        "each of them nothing." in report
    )
    assert report.count("Why:") == 1


@pytest.mark.parametrize(
    ("fn", "advice"),
    [
        (lambda: input("name? "), "A rank has no keyboard"),
        (lambda: torch.ones(1).get_rank(), "stands for a Tensor here"),
        (lambda x: x, "its arguments come after n"),
        (lambda: dist.barrier().wait(), "only with async_op=True"),
        (lambda: dist.send(torch.ones(1), dist.get_rank()), "cannot send to itself"),
    ],
)
def test_advice(fn, advice: str) -> None:
    assert advice in report_of(fn, 1)


def test_the_result_of_a_call_that_works_in_place() -> None:
    def adds_none():
        x = torch.ones(1)
        x = dist.all_reduce(x)
        return x + 1

    report = report_of(adds_none, 1)
    number = line_of(adds_none, "all_reduce").rpartition(" ")[2]
    assert f"dist.all_reduce in line {number} writes into the tensors" in report
    assert "leave out `x =` there" in report


def test_no_line_is_wider_than_a_notebook() -> None:
    def wide():
        if dist.get_rank() == 0:
            raise ValueError("a sentence that goes on " * 20)
        a_tensor_with_a_name = torch.ones(2, 3); dist.recv(a_tensor_with_a_name, src=0)  # fmt: skip  # noqa: E702

    with pytest.raises(RankError) as caught:
        collect(wide, 2)
    lines = "\n".join(caught.value._render_traceback_()).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[1].startswith("      ")
    assert lines[-1].strip().startswith("a_tensor_with_a_name = torch.ones(2, 3); dist.recv(")
    assert lines[-1].endswith(" …")


def test_many_ranks_are_not_listed() -> None:
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([2, 0]) == "ranks 0 and 2"
    assert ranks_text(list(range(1, 64))) == "ranks 1 to 63"


def test_a_warning_on_several_ranks_is_told_once(capsys):
    def overwrite():
        rank, ranks = dist.get_rank(), dist.get_world_size()
        sent, arrived = torch.ones(4), torch.empty(4)
        work = dist.isend(sent, (rank + 1) % ranks)
        sent.fill_(2.0)
        dist.recv(arrived, (rank - 1) % ranks)
        work.wait()

    run_ranks(overwrite, 3)
    shown = joined(capsys.readouterr().out)
    lines = [line for line in shown.splitlines() if line.startswith("warning:")]
    assert len(lines) == 1
    assert "isend to rank 1" in lines[0]
    assert lines[0].endswith("(ranks 0, 1 and 2; told for rank 0)")


@pytest.mark.parametrize(
    ("ours", "call", "said"),
    [
        (
            "course_lib.ranks.run_directory.RunDir.create",
            lambda: collect(dist.get_rank, 2),
            "prepared",
        ),
        ("course_lib.checks.check_in_kernel.examine", lambda: check(ping_pong), "between two runs"),
    ],
)
def test_an_interrupt_of_our_own_work_is_one_sentence(monkeypatch, ours, call, said) -> None:
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ours, interrupted)
    with pytest.raises(RankInterrupt, match=said) as caught:
        call()
    assert len(caught.value._render_traceback_()) == 1


def ping_pong(x) -> None: ...


def test_a_failure_that_torch_tells_all_ranks_is_laid_at_its_door(tmp_path) -> None:
    def save():
        import torch.distributed.checkpoint as dcp

        class Unwritable(dcp.FileSystemWriter):
            def write_data(self, plan, planner):
                if dist.get_rank() == 1:
                    raise OSError("no room")
                return super().write_data(plan, planner)

        dcp.save({f"{dist.get_rank()}": torch.ones(1)}, storage_writer=Unwritable(tmp_path))

    report = report_of(save)
    assert report.startswith("rank 1 raised OSError: no room\n    in ")
    assert line_of(save, "dcp.save") in report
    assert re.search(
        r"rank 0  was told that another rank had failed +" + line_of(save, "dcp.save"), report
    )


def test_an_exception_around_a_lost_connection_is_a_consequence() -> None:
    def wrapped_up():
        if dist.get_rank() == 1:
            os._exit(3)
        try:
            dist.recv(torch.ones(1), 1)
        except RuntimeError as problem:
            raise ValueError("stage 0") from problem

    report = report_of(wrapped_up)
    assert report.startswith("rank 1 left with exit code 3")
    assert "raised ValueError" not in report


def test_a_deadlock_is_called_one_by_an_interrupt_too(monkeypatch) -> None:
    def interrupted(self, ranks: list[int]) -> bool:
        if self.all_blocked(ranks):
            raise KeyboardInterrupt
        return False

    monkeypatch.setattr(HangDetector, "deadlocked", interrupted)
    with pytest.raises(RankInterrupt) as caught:
        collect(lambda: dist.recv(torch.ones(1), 1 - dist.get_rank()), 2)
    report = joined(caught.value.report)
    assert report.startswith(
        "ranks 0 and 1 had not finished when the run was interrupted: deadlock.\n"
    )
    assert "both wait to receive first" in report
