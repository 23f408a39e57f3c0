"""Ranks that communicate from several threads."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from course_lib.ranks import RankTimeout, collect

THREADS, MESSAGES = 8, 12


def talk(kind: str) -> list[float]:
    """Every thread sends its own numbers around, under a tag of its own."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    all_there = threading.Barrier(THREADS)

    def pass_on(tag: int) -> float:
        all_there.wait()
        arrived = torch.zeros(3)
        for step in range(MESSAGES):
            sent = torch.full((3,), float(tag * 100 + step))
            work = dist.isend(sent, right, tag=tag)
            if kind == "asynchronous":
                dist.irecv(arrived, left, tag=tag).wait()
            else:
                dist.recv(arrived, left, tag=tag)
            work.wait()
            with torch.profiler.record_function(f"thread {tag}"):
                dist.recv(arrived, left, tag=tag) if rank % 2 else dist.send(sent, right, tag=tag)
                dist.send(sent, right, tag=tag) if rank % 2 else dist.recv(arrived, left, tag=tag)
            assert arrived.tolist() == [tag * 100 + step] * 3
        return arrived[0].item()

    with torch.profiler.record_function("all"), ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(pass_on, range(1, THREADS + 1)))


@pytest.mark.parametrize("kind", ["blocking", "asynchronous"])
@pytest.mark.parametrize("observe", [True, "memory"])
def test_eight_threads_a_rank_are_recorded_whole(kind, observe) -> None:
    results = collect(talk, 2, (kind,), observe=observe)
    assert results.warnings == []
    trace, messages = results.trace, THREADS * MESSAGES * 2
    for rank in (0, 1):
        events = trace.of(rank)
        assert [event.n for event in events] == list(range(2 * messages))
        assert all(event.done is not None for event in events)
        assert {event.thread for event in events} == set(range(1, THREADS + 1))
    assert trace.traffic().messages == [messages, messages]
    assert len(trace.match().pairs) == 2 * messages


def test_labels_belong_to_the_thread_that_opened_them() -> None:
    trace = collect(talk, 2, ("blocking",)).trace
    within = {event.spans for event in trace.of(0) if event.tag == 3}
    assert within == {("all",), ("all", "thread 3")}
    ended = [label.name for label in trace.labels if label.rank == 0]
    assert sorted(set(ended)) == ["all", *(f"thread {tag}" for tag in range(1, THREADS + 1))]


def in_a_thread(work) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_deadlock_in_joined_threads_is_found_and_told_by_their_lines() -> None:
    def both_send():
        other = 1 - dist.get_rank()
        in_a_thread(lambda: dist.send(torch.ones(3), other))

    with pytest.raises(RankTimeout) as caught:
        collect(both_send, 2, timeout=60)
    report = " ".join(caught.value.report.split())
    assert report.startswith("deadlock: ranks 0 and 1 wait for something")
    assert report.count("in_a_thread(lambda: dist.send(torch.ones(3), other))") == 2
    assert "ranks 0 and 1 both send first" in report


def test_a_thread_that_listens_while_its_rank_sleeps_is_no_deadlock() -> None:
    def listen():
        got = torch.zeros(1)
        if dist.get_rank():
            time.sleep(4)  # longer than it takes to call ranks that stand still deadlocked
            dist.send(torch.ones(1), 0)
        else:
            thread = threading.Thread(target=dist.recv, args=(got, 1))
            thread.start()
            time.sleep(4.5)
            thread.join()
        return got.item()

    assert list(collect(listen, 2)) == [1.0, 0.0]
