"""The recorder by itself, as a script under torchrun uses it: one process, one journal."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from course_lib.observe import read_trace

HEAD = """
import gc, os, sys, weakref
import torch, torch.distributed as dist
from torch._C._distributed_c10d import Work
from course_lib.observe import Recorder

path = sys.argv[1]

def join():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
"""


@pytest.fixture
def script(tmp_path):
    """Run a script with the recorder imported; gives its exit status and trace."""

    def run(body: str):
        path = tmp_path / "journal"
        code = HEAD + textwrap.dedent(body)
        done = subprocess.run([sys.executable, "-c", code, path], timeout=120, capture_output=True)
        if done.returncode > 0:
            raise AssertionError(done.stderr.decode())
        return done.returncode, read_trace({0: path})

    return run


def test_nothing_stays_behind(script):
    _, trace = script(
        """
        methods = Work.wait, Work.is_completed, Work.get_future
        with Recorder(path):  # the group comes later
            join()
            x = torch.ones(2)
            work = dist.all_reduce(x, async_op=True)
            assert Work.wait is not methods[0]
            kept = weakref.ref(work)
            work.wait()
            del work
            assert kept() is None
            lost = torch.ones(1000)
            memory = weakref.ref(lost.untyped_storage())
            works = [dist.all_reduce(lost, async_op=True)]
            works.pop().wait()
            del lost
            gc.collect()
            assert memory() is None
        assert (Work.wait, Work.is_completed, Work.get_future) == methods
        descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)
        x.add_(1)
        work.wait()
        for _ in range(3):
            with Recorder(path + "2"):
                dist.all_reduce(x)
        if descriptors:
            assert len(os.listdir("/proc/self/fd")) == descriptors

        try:  # an exception passes, and what it kept from being waited for is nobody's mistake
            with Recorder(path):
                work = dist.all_reduce(torch.ones(2), async_op=True)
                raise KeyError("learner")
        except KeyError as problem:
            assert problem.args == ("learner",)
        else:
            raise AssertionError
        assert torch._C._len_torch_dispatch_stack() == 0

        with Recorder(path + "3"):
            try:
                Recorder(path + "4").__enter__()
            except RuntimeError as problem:
                assert "already open" in str(problem) and path + "3" in str(problem)
            else:
                raise AssertionError
            q = torch.ones(2, requires_grad=True) * 2
            dist.all_reduce(q)
        q.sum().backward()  # what it left in the graph does no harm
        """
    )
    assert [event.op for event in trace.events] == ["all_reduce"]  # the last one began it anew
    assert trace.world_size == 1
    assert trace.warnings == []


def test_nothing_of_the_watch_over_memory_stays_behind(script):
    _, trace = script(
        """
        from torch.autograd.graph import saved_tensors_hooks
        from torch.nn.modules import module
        from torch.optim import optimizer as optim

        def state():
            return (
                torch.UntypedStorage.resize_,
                saved_tensors_hooks.__enter__,
                len(module._global_parameter_registration_hooks),
                len(optim._global_optimizer_pre_hooks),
                len(optim._global_optimizer_post_hooks),
                torch._C._autograd._top_saved_tensors_default_hooks(True),
                torch._C._len_torch_dispatch_stack(),
                len(linear.weight._post_accumulate_grad_hooks or ()),
            )

        join()
        linear = torch.nn.Linear(3, 3)
        before = state()
        with Recorder(path, memory=True):
            linear(torch.ones(3)).sum().backward()
            assert state() != before
        assert state() == before
        """
    )
    assert trace.memory().highest[0]["gradients"] == 4 * 12


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_rank_and_a_forked_child(script):
    code, trace = script(
        """
        join()
        with Recorder(path):
            work = dist.all_reduce(torch.ones(2), async_op=True)
            if os.fork() == 0:
                del work  # the child's copy of the recorder sees an operation nobody waits for
                os._exit(0)
            os.wait()
            work.wait()
            os.kill(os.getpid(), 9)
        """
    )
    assert code == -signal.SIGKILL
    (event,) = trace.events
    assert event.done is not None
    assert trace.warnings == []


def test_tensors_die_as_soon_as_without_a_recorder(script):
    # Else a memory curve would show what garbage collection has not come to yet.
    _, trace = script(
        """
        gc.disable()
        join()
        with Recorder(path):
            x = torch.ones(2)
            work = dist.all_reduce(x, async_op=True)
            made = torch.ones(1000) * 2
            gone = weakref.ref(made)
            del made
            assert gone() is None
            work.wait()
        """
    )
    assert trace.warnings == []


UNDER_TORCHRUN = """
import os, sys
import torch, torch.distributed as dist
from torch.profiler import record_function
from course_lib.observe import Recorder

with Recorder(f"{sys.argv[1]}/{os.environ['RANK']}.journal", memory=True):
    with record_function("setting up"):
        dist.init_process_group("gloo")
    rank, x = dist.get_rank(), torch.ones(5)
    with record_function("F0.0"):
        x @ x
    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
    dist.all_reduce(x)
dist.destroy_process_group()
"""


def test_ranks_under_torchrun_write_one_part_each(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(UNDER_TORCHRUN)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*command, script, tmp_path], timeout=180, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    trace = read_trace(tmp_path)
    assert trace.world_size == 2
    assert [(e.rank, e.op) for e in trace.events] == [
        (0, "send"), (0, "all_reduce"), (1, "recv"), (1, "all_reduce"),
    ]  # fmt: skip
    assert {(label.rank, label.name) for label in trace.labels} == {
        (rank, name) for rank in range(2) for name in ("setting up", "F0.0")
    }
    assert {span.rank for span in trace.compute} == {0, 1}
    assert trace.warnings == []
    assert len(trace.match().pairs) == 1
    assert trace.memory().highest[1]["communication"] == 20
    assert trace.timeline().peak_in_flight == (1,)
