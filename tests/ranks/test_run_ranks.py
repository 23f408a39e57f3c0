"""run_ranks: what goes out, what comes back, what is refused, what is left behind."""

import os
import resource
import sys
import threading
import time

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.ranks import RankError, collect, run_ranks
from course_lib.ranks.launcher_client import running_launcher
from course_lib.ranks.run_ranks import import_ahead

START = ["forkserver", "spawn"]


def rank_sum(offset: int = 0) -> float:
    total = torch.ones(3) * (dist.get_rank() + offset)
    dist.all_reduce(total)
    return total[0].item()


# A rank that is a fresh Python takes seconds to import torch: of those, no more than are needed.
@pytest.mark.parametrize(("start", "world_size"), [(START[0], 1), (START[0], 3), (START[1], 2)])
def test_every_rank_takes_part(start: str, world_size: int) -> None:
    results = collect(rank_sum, world_size, (1,), start=start)
    assert list(results) == [world_size * (world_size + 1) / 2] * world_size


@pytest.mark.parametrize("start", START)
def test_a_fresh_rank_has_hashes_of_its_own(start: str) -> None:
    first, second, fresh = collect(lambda: hash("a text"), 3, start=start, fresh=[2])
    assert first == second != fresh


def test_64_ranks() -> None:
    assert list(collect(rank_sum, 64, timeout=60)) == [2016.0] * 64


def test_lambda_closure_and_keyword_arguments() -> None:
    factor = 3
    results = run_ranks(lambda a, *, b: (dist.get_rank() * factor, a, b), 2, "a", b="b")
    assert list(results) == [(0, "a", "b"), (3, "a", "b")]
    assert results[1] == (3, "a", "b")
    assert len(results) == 2


def test_what_comes_back() -> None:
    def values():
        big = torch.zeros(25_000_000)
        weight = nn.Parameter(torch.ones(2, 3))
        return {
            "tensor": torch.ones(2_000_000),
            "view": big[5:10],
            "transposed": torch.arange(6).reshape(2, 3).t(),
            "scalar": torch.tensor(2.5, dtype=torch.bfloat16),
            "empty": torch.empty(0, 4),
            "graph": (weight * 2).sum(),
            "parameter": weight,
            "module": nn.Linear(2, 2),
            "sparse": torch.eye(3).to_sparse(),
        }

    started = time.monotonic()
    first = collect(values, 2)[1]
    assert torch.equal(first["tensor"], torch.ones(2_000_000))
    assert first["view"].untyped_storage().nbytes() == 20
    assert torch.equal(first["transposed"], torch.arange(6).reshape(2, 3).t())
    assert first["scalar"].item() == 2.5
    assert first["scalar"].shape == ()
    assert first["empty"].shape == (0, 4)
    assert first["graph"].item() == 12
    assert not first["graph"].requires_grad
    assert isinstance(first["parameter"], nn.Parameter)
    assert first["module"](torch.ones(1, 2)).shape == (1, 2)
    assert torch.equal(first["sparse"].to_dense(), torch.eye(3))
    assert time.monotonic() - started < 20


def test_a_result_that_cannot_travel_is_named() -> None:
    with pytest.raises(RankError, match="rank 0 returned something that cannot be sent back"):
        collect(lambda: threading.Lock() if dist.get_rank() == 0 else 1, 2)


def test_a_function_that_cannot_travel_is_refused_before_any_rank_starts() -> None:
    lock = threading.Lock()
    with pytest.raises(ValueError, match="cannot be sent to another process"):
        collect(lambda: lock.acquire(), 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 2), "needs a function, not int"),
        ((rank_sum, 0), "from 1 to 256, not 0"),
        ((rank_sum, "4"), "whole number of ranks, not '4'"),
        ((rank_sum, True), "whole number of ranks, not True"),
    ],
)
def test_bad_arguments(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_ranks(*arguments)


def test_bad_options() -> None:
    with pytest.raises(ValueError, match="more than 0 seconds, not -1"):
        run_ranks(rank_sum, 2, timeout=-1)
    with pytest.raises(ValueError, match='or "cuda", not'):
        run_ranks(rank_sum, 2, device="tpu")
    with pytest.raises(ValueError, match='"forkserver" or "spawn"'):
        run_ranks(rank_sum, 2, start="fork")


def test_more_ranks_than_gpus(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="each of the 2 ranks, and here are 1"):
        run_ranks(rank_sum, 2, device="cuda")
    assert list(run_ranks(rank_sum, 2)) == [1.0, 1.0]
    assert capsys.readouterr().out == "gloo on the CPU: 2 ranks, but 1 GPU\n"


@pytest.mark.parametrize("start", START)
def test_output_is_whole_lines_in_rank_order(start: str, capfd) -> None:
    def talk():
        rank = dist.get_rank()
        for step in range(3):
            time.sleep((2 - rank) * 0.003)
            print("step", step, end="")
            print("", flush=rank % 2 == 0)
        print("to stderr", file=sys.stderr)
        os.write(1, b"native\n")

    run_ranks(talk, 2, start=start)
    shown = capfd.readouterr()
    per_rank = ["step 0", "step 1", "step 2", "to stderr", "native"]
    assert shown.out.splitlines() == [f"[rank {r}] {line}" for r in range(2) for line in per_rank]
    assert shown.err == ""


def test_the_middle_of_a_long_output_is_kept_and_not_shown(capsys) -> None:
    def talk():
        for i in range(5000):
            print(i)

    results = run_ranks(talk, 2)
    shown = capsys.readouterr().out.splitlines()
    assert len(results.output[1].splitlines()) == 5000
    assert len(shown) == 2 * 601
    assert shown[499:502] == [
        "[rank 0] 499",
        "[rank 0] ... 4400 lines are not shown here ...",
        "[rank 0] 4900",
    ]


def test_last_words_of_a_killed_rank_are_shown(capsys) -> None:
    def die():
        print("last words", end="")
        os.kill(os.getpid(), 9)

    with pytest.raises(RankError, match="killed by SIGKILL") as caught:
        run_ranks(die, 2)
    assert capsys.readouterr().out == "[rank 0] last words\n[rank 1] last words\n"
    assert caught.value.output[1] == "last words"


def test_printing_without_end_is_stopped() -> None:
    def flood():
        while True:
            print("x" * 10_000)

    with pytest.raises(RankError, match="printed without end") as caught:
        collect(flood, 1)
    assert len(caught.value.output[0]) < 200_000


def test_input_does_not_wait_for_a_person() -> None:
    with pytest.raises(RankError, match="EOFError"):
        collect(lambda: input("name? "), 1)


def test_environment_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    leftovers = {
        "MASTER_ADDR": "no.such.host",
        "MASTER_PORT": "1",
        "RANK": "7",
        "WORLD_SIZE": "99",
        "GLOO_SOCKET_IFNAME": "eth9",
        "http_proxy": "http://127.0.0.1:1",
    }
    for name, value in leftovers.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OF_THE_LEARNER", "kept")
    before = dict(os.environ), torch.get_num_threads(), os.getcwd()

    def look():
        dist.barrier()
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "OF_THE_LEARNER")
        return [os.environ.get(name) for name in names]

    assert collect(look, 2)[1] == ["1", "2", None, "kept"]
    assert (dict(os.environ), torch.get_num_threads(), os.getcwd()) == before


def test_cores_are_shared_out() -> None:
    threads = list(collect(torch.get_num_threads, 8))
    assert threads == [max(1, len(os.sched_getaffinity(0)) // 8)] * 8


def test_a_learner_who_tears_down_himself(capfd) -> None:
    def tidy():
        dist.barrier()
        dist.destroy_process_group()
        return "done"

    for _ in range(5):
        assert list(run_ranks(tidy, 2)) == ["done", "done"]
    assert capfd.readouterr() == ("", "")


def test_init_process_group_a_second_time_is_explained() -> None:
    with pytest.raises(RankError, match="run_ranks has already called init_process_group"):
        collect(lambda: dist.init_process_group("gloo"), 2)


def test_many_runs_leave_nothing(tmp_path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    me = psutil.Process()
    run_ranks(rank_sum, 2)
    process = psutil.Process(running_launcher().process.pid)

    def use() -> tuple:
        sockets = [c for p in (me, process) for c in p.net_connections()]
        return me.num_fds(), process.num_fds(), process.children(), len(sockets)

    before = use()
    for _ in range(50):
        assert list(run_ranks(rank_sum, 2)) == [1.0, 1.0]
    assert use() == before
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_grandchildren_end_with_the_run() -> None:
    def leave_children():
        import subprocess

        inside = subprocess.Popen(["sleep", "600"])
        escaped = subprocess.Popen(["sleep", "600"], start_new_session=True)
        return inside.pid, escaped.pid

    pids = [pid for pair in collect(leave_children, 2) for pid in pair]
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_calls_from_several_threads_take_turns() -> None:
    answers: list[float] = []
    threads = [
        threading.Thread(target=lambda k=k: answers.extend(collect(rank_sum, 2, (k,))))
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [1.0, 1.0, 3.0, 3.0, 5.0, 5.0, 7.0, 7.0]


def test_a_lost_host_is_replaced() -> None:
    collect(rank_sum, 1)
    running_launcher().process.kill()
    running_launcher().process.wait()
    assert list(collect(rank_sum, 2)) == [1.0, 1.0]


def test_what_is_imported_ahead_does_no_harm() -> None:
    collect(rank_sum, 1)
    launcher = psutil.Process(running_launcher().process.pid)
    checks = [f"course_lib.checks.{name}" for name in ("laws", "run_cases", "registry")]
    import_ahead("no_such_module", *checks)
    import_ahead(*checks)
    assert list(collect(rank_sum, 2)) == [1.0, 1.0]
    assert launcher.is_running()
    assert launcher.num_threads() == 1  # a process with more could not fork safely


def test_a_rank_that_cannot_write_its_files_says_so() -> None:
    def fill_up():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # as on a full disk

    with pytest.raises(RankError, match=r"rank 0 could not go on: OSError: .*File too large"):
        collect(fill_up, 1)
