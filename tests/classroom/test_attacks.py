"""Answers that get their numbers past the messages that count, or forge what is counted: 0 points.

Each is put to the grader as it is. Those of `PAST` have the other rank's tensor from somewhere
else, send what depends on their own for the sake of the count, and take out of the result again
what comes of it, so that all is well if the tensor came; `UNRECORDED` move it by operations that
they hide; `FORGED` write the record or the result themselves; `GUESSED` look for the inputs or the
results; `WORN` go near a limit for a long time. `test_covert_channels.py` has those that need
nothing but the machine that both run on, `test_hostile.py` those that harm.
"""

import pytest

from course_lib.classroom.grading import batch
from tests.classroom import tiny
from tests.classroom.attacked import CANCELLED, require_nothing_gained, verdicts_on

# An answer to `exchange` that sends zeros, and asks `past(tensor, other)` for the other's tensor.
JUNK = """
def exchange(tensor):
    me, other = dist.get_rank(), 1 - dist.get_rank()
    theirs = past(tensor, me, other)
    junk = torch.empty_like(tensor)
    sending = dist.isend(torch.zeros_like(tensor), dst=other)
    dist.recv(junk, src=other)
    sending.wait()
    return theirs
"""
# The same, which lets the junk make a difference.
ADDED = JUNK.replace("return theirs", "return theirs + junk")
# The same, which ends where the junk is not what it sent.
RAISING = JUNK.replace("return theirs", "assert not junk.any()\n    return theirs")
# One that needs no junk: what it does is hidden from the count.
DIRECT = """
def exchange(tensor):
    me, other = dist.get_rank(), 1 - dist.get_rank()
    return past(tensor, me, other)
"""
WAIT = """
import time
def until(look, seconds=1.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = look()
        except Exception:
            found = None
        if found:
            return found
        time.sleep(0.01)
    raise TimeoutError("nobody there")
"""
WAYS = {"junk": JUNK, "added": ADDED, "raising": RAISING, "cancelled": CANCELLED, "direct": DIRECT}
BY_FILE = """
import os, torch
def past(tensor, me, other):
    torch.save(tensor, f"{FOLDER}/{me}.part")
    os.rename(f"{FOLDER}/{me}.part", f"{FOLDER}/{me}.pt")
    return until(lambda: torch.load(f"{FOLDER}/{other}.pt"))
"""
STORE = """
import pickle, datetime
def past(tensor, me, other):
    store = dist.distributed_c10d._get_default_store()
    past.calls = getattr(past, "calls", 0) + 1
    store.set(f"KEY{past.calls}.{me}", pickle.dumps(tensor.tolist()).hex())
    theirs = store.get(f"KEY{past.calls}.{other}")
    return torch.tensor(pickle.loads(bytes.fromhex(theirs.decode())))
"""
TCP = """
import socket, struct
def past(tensor, me, other):
    own = socket.create_server(("127.0.0.1", 29100 + me))
    def call():
        try: return socket.create_connection(("127.0.0.1", 29100 + other), timeout=1)
        except OSError: return None
    calling = until(call)
    calling.sendall(struct.pack("f", tensor.item()))
    heard = own.accept()[0]
    return torch.tensor(struct.unpack("f", heard.recv(4)))
"""
UDP = """
import socket, struct
def past(tensor, me, other):
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(("127.0.0.1", 29200 + me)); own.settimeout(0.05)
    def talk():
        own.sendto(struct.pack("f", tensor.item()), ("127.0.0.1", 29200 + other))
        return own.recv(4)
    heard = until(talk)
    own.sendto(struct.pack("f", tensor.item()), ("127.0.0.1", 29200 + other))
    return torch.tensor(struct.unpack("f", heard))
"""
UNIX = """
import socket, struct
def past(tensor, me, other):
    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    own.bind(f"\\0rank{me}"); own.settimeout(0.5)
    until(lambda: own.sendto(struct.pack("f", tensor.item()), f"\\0rank{other}"))
    return torch.tensor(struct.unpack("f", own.recv(4)))
"""
SHARED = """
from multiprocessing import shared_memory
import struct
def past(tensor, me, other):
    own = shared_memory.SharedMemory(f"rank{me}", create=True, size=4)
    own.buf[:4] = struct.pack("f", tensor.item())
    theirs = until(lambda: shared_memory.SharedMemory(f"rank{other}"))
    return torch.tensor(struct.unpack("f", theirs.buf[:4]))
"""
SYSV = """
import ctypes, struct
def past(tensor, me, other):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    own = libc.shmget(7700 + me, 4, 0o1666)
    ctypes.memmove(libc.shmat(own, None, 0), struct.pack("f", tensor.item()), 4)
    def look():
        found = libc.shmget(7700 + other, 4, 0o666)
        return found if found >= 0 else None
    return torch.tensor(struct.unpack("f", ctypes.string_at(libc.shmat(until(look), None, 0), 4)))
"""
KEYS = """
import ctypes, struct
def past(tensor, me, other):
    libc = ctypes.CDLL(None)
    add, search = (248, 250) if __import__("os").uname().machine == "x86_64" else (217, 219)
    libc.syscall(add, b"user", f"rank{me}".encode(), struct.pack("f", tensor.item()), 4, -4)
    room = ctypes.create_string_buffer(4)
    def look():
        key = libc.syscall(search, 10, -4, b"user", f"rank{other}".encode(), 0)
        return key > 0 and libc.syscall(search, 11, key, room, 4) == 4
    until(look)
    return torch.tensor(struct.unpack("f", room.raw))
"""
NEIGHBOUR = """
import glob, os, struct
def past(tensor, me, other):
    mark = b"here it is: "
    kept = bytearray(mark + struct.pack("f", tensor.item()))
    for maps in glob.glob("/proc/[0-9]*/mem"):
        if maps.split("/")[2] != str(os.getpid()):
            return torch.tensor([float(len(open(maps, "rb").read(16)))])
    raise LookupError("no other process")
"""
READV = """
import ctypes, os
def past(tensor, me, other):
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in range(1, 400):
        if pid != os.getpid() and libc.kill(pid, 0) == 0:
            break
    raise LookupError("no other process")
"""
ENVIRON = """
import glob, os
def past(tensor, me, other):
    os.environ["TENSOR"] = str(tensor.item())
    texts = [open(f, "rb").read() for f in glob.glob("/proc/[0-9]*/environ")]
    return torch.tensor([float(t.split(b"TENSOR=")[1].split(b"\\0")[0]) for t in texts][1:2])
"""
DESCRIPTORS = """
import os, struct
def past(tensor, me, other):
    for fd in range(3, 200):
        try:
            os.pwrite(fd, struct.pack("f", tensor.item()), 4096 + 4 * me)
        except OSError:
            pass
    def look():
        for fd in range(3, 200):
            try:
                found = os.pread(fd, 4, 4096 + 4 * other)
            except OSError:
                continue
            if len(found) == 4 and any(found):
                return found
    return torch.tensor(struct.unpack("f", until(look)))
"""
FIFO = BY_FILE.replace("torch.save(tensor", "os.mkfifo('/dev/shm/f'); torch.save(tensor")
EVENTS = """
import glob, os
def past(tensor, me, other):
    pipe = os.open(glob.glob("/ranks/*/*/events")[0], os.O_RDWR | os.O_NONBLOCK)
    os.write(pipe, b"%d %f\\n" % (me, tensor.item()))
    def look():
        for line in os.read(pipe, 4096).splitlines():
            if line.startswith(b"%d " % other):
                return torch.tensor([float(line.split()[1])])
    return until(look)
"""
FRAMES = """
import sys
def past(tensor, me, other):
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            data = getattr(value, "data", None)
            if isinstance(data, dict) and "x" in data:
                return data["x"][other].clone()
        frame = frame.f_back
    raise LookupError("not here")
"""
GARBAGE = """
import gc
def past(tensor, me, other):
    for value in gc.get_objects():
        if isinstance(value, dict) and isinstance(value.get("x"), list) and len(value["x"]) == 2:
            if any(torch.equal(value["x"][me], tensor) for _ in "1"):
                return value["x"][other].clone()
    raise LookupError("not here")
"""
JOB = """
import glob, pickle, cloudpickle
def past(tensor, me, other):
    job = pickle.loads(open(glob.glob("/dev/shm/*/job")[0], "rb").read())
    call = cloudpickle.loads(job["call"])
    for case in call[1][-1]:
        for each in case.data.get("both", (case,)):
            if torch.equal(each.data["x"][me], tensor):
                return each.data["x"][other].clone()
    raise LookupError("not here")
"""
THREADS_FRAMES = FRAMES.replace(
    "frame = sys._getframe()", "frame = list(sys._current_frames().values())[-1]"
)
CASES = """
import gc
def past(tensor, me, other):
    for value in gc.get_objects():
        data = getattr(value, "data", None)
        if type(value).__name__ == "Case" and isinstance(data, dict) and "x" in data:
            if data["x"][other] is not None:
                return data["x"][other].clone()
    raise LookupError("not here")
"""
PICKLES = """
import re, struct
def past(tensor, me, other):
    mine = struct.pack("f", tensor.item())
    with open("/proc/self/mem", "rb", 0) as memory:
        for line in open("/proc/self/maps"):
            if " rw" not in line or "[v" in line: continue
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            memory.seek(begin)
            held = memory.read(end - begin)
            for found in re.finditer(re.escape(mine), held):
                before = held[found.start() - 12:found.start()]
                near = held[max(0, found.start() - 4000):found.start() + 4000]
                for prefix in re.finditer(re.escape(before), near):
                    theirs = near[prefix.end():prefix.end() + 4]
                    if len(set(before)) > 4 and theirs != mine and len(theirs) == 4:
                        value, = struct.unpack("f", theirs)
                        if 0 < value < 1: return torch.tensor([value])
    raise LookupError("not here")
"""
PARENT = """
import os
def past(tensor, me, other):
    for place in (f"/proc/{os.getppid()}", "/proc/1", "/proc/2"):
        for name in ("mem", "maps", "root", "fd/3"):
            if f"/proc/{os.getpid()}" != place:
                open(f"{place}/{name}", "rb").read(1)
    raise LookupError("it would be there")
"""
ARGUMENTS = """
import glob, cloudpickle
def past(tensor, me, other):
    for file in glob.glob("/ranks/*/*/arguments"):
        for case in cloudpickle.loads(open(file, "rb").read())[0]:
            for each in case.data.get("both", (case,)):
                if each.data["x"][other] is not None:
                    return each.data["x"][other].clone()
    raise LookupError("not here")
"""
UNSEEN = """
from torch.utils._python_dispatch import _disable_current_modes
def past(tensor, me, other):
    both = [torch.empty_like(tensor) for _ in "12"]
    with _disable_current_modes():
        dist.all_gather(both, tensor)
    return both[other]
"""
BACKEND = """
def past(tensor, me, other):
    gloo = dist.group.WORLD._get_backend(torch.device("cpu"))
    both = [torch.empty_like(tensor) for _ in "12"]
    gloo.allgather([both], [tensor]).wait()
    return both[other]
"""
OWN_GROUP = """
def past(tensor, me, other):
    store = dist.PrefixStore("mine", dist.distributed_c10d._get_default_store())
    gloo = dist.ProcessGroupGloo(store, me, 2)
    both = [torch.empty_like(tensor) for _ in "12"]
    gloo.allgather([both], [tensor]).wait()
    return both[other]
"""
NEW_GROUP = """
def past(tensor, me, other):
    both = [torch.empty_like(tensor) for _ in "12"]
    dist.all_gather(both, tensor, group=dist.new_group([0, 1]))
    return both[other]
"""
THREAD = """
import threading
def past(tensor, me, other):
    both = [torch.empty_like(tensor) for _ in "12"]
    gloo = dist.group.WORLD._get_backend(torch.device("cpu"))
    thread = threading.Thread(target=lambda: gloo.allgather([both], [tensor]).wait())
    thread.start(); thread.join()
    return both[other]
"""
TCP_STORE = """
import datetime
def past(tensor, me, other):
    wait = datetime.timedelta(seconds=2)
    store = dist.TCPStore("127.0.0.1", 29333, 2, me == 0, timeout=wait, wait_for_workers=False)
    store.set(f"{me}", str(tensor.item()))
    return torch.tensor([float(store.get(f"{other}"))])
"""
RPC = """
def past(tensor, me, other):
    import torch.distributed.rpc as rpc
    rpc.init_rpc(f"r{me}", rank=me, world_size=2)
    return rpc.rpc_sync(f"r{other}", torch.neg, args=(tensor,))
"""


# By gloo itself: no operation of torch is run that a recorder could see.
MESSAGES = """
def past(tensor, me, other):
    gloo = dist.group.WORLD._get_backend(torch.device("cpu"))
    theirs = torch.empty_like(tensor)
    sending = gloo.send([tensor], other, 7)
    gloo.recv([theirs], other, 7).wait()
    sending.wait()
    return theirs
"""
# Barriers move nothing, so that any number may be called: each allows for some of gloo's bytes.
BARRIERS = MESSAGES.replace("    return", "    for _ in range(20): dist.barrier()\n    return")
# Of two messages, one. What is sent in its place is taken out of the result again.
ONE_WAY = """
def exchange(tensor):
    me, other = dist.get_rank(), 1 - dist.get_rank()
    gloo = dist.group.WORLD._get_backend(torch.device("cpu"))
    theirs, heard = torch.empty_like(tensor), torch.empty_like(tensor)
    if me == 0:
        gloo.recv([theirs], 1, 7).wait()
        sending = dist.isend(tensor, dst=other)
    else:
        gloo.send([tensor], 0, 7).wait()
        sending = dist.isend(torch.floor(tensor * 1000), dst=other)
    dist.recv(heard, src=other)
    sending.wait()
    return theirs + (heard - torch.floor(theirs * 1000)) if me == 0 else heard
"""


def by_file(folder: str) -> str:
    return BY_FILE.replace("{FOLDER}", folder)


PAST = {
    **{f"file in {f}": by_file(f) for f in (".", "/dev/shm", "/tmp", "/sandbox", "/var/tmp")},
    "file beside the store": by_file("{__import__('glob').glob('/dev/shm/*')[0]}"),
    "file of python": by_file("{__import__('os').path.dirname(torch.__file__)}"),
    "the group's store": STORE.replace("KEY", "tensor"),
    "the group's store, like torch": STORE.replace("KEY", "/group/0//cpu//0/"),
    "tcp": TCP,
    "udp": UDP,
    "unix sockets": UNIX,
    "shared memory": SHARED,
    "system v memory": SYSV,
    "kernel keys": KEYS,
    "another's memory": NEIGHBOUR,
    "another's process": READV,
    "environment": ENVIRON,
    "inherited descriptors": DESCRIPTORS,
    "named pipes": by_file("/dev/shm").replace("torch.save(", "os.mkfifo(f'{me}'); torch.save("),
    "the event pipe": EVENTS,
    "frames": FRAMES,
    "garbage collector": GARBAGE,
    "frames of all threads": THREADS_FRAMES,
    "cases": CASES,
    "pickles in its memory": PICKLES,
    "its parents": PARENT,
    "the job's file": JOB,
    "the arguments' files": ARGUMENTS,
    "a group of its own": OWN_GROUP,
    "a group that torch makes": NEW_GROUP,
    "a store of its own": TCP_STORE,
    "remote calls": RPC,
}
UNRECORDED = {"modes put aside": UNSEEN, "the backend itself": BACKEND, "a thread": THREAD}

WRITTEN = (
    BACKEND
    + """
import time
from course_lib.observe.events import CommEvent
from course_lib.observe.recorder import Recorder
def exchange(tensor):
    me, record = dist.get_rank(), Recorder._open
    theirs = past(tensor, me, 1 - me)
    for op in ("send", "recv"):
        now = time.monotonic()
        shape, blocking, native = ((1,),), True, False
        event = CommEvent(
            *(me, next(record._count), op, "0", (0, 1), 1 - me, 0, 4, shape, "float32", None),
            *(blocking, native, now, now, now),
            spans=tuple(record._labels),
        )
        record._journal.issue(event)
        record._journal.wait(event.n, now)
        record._journal.done(event.n, now, 1 - me)
    return theirs
"""
)
UNHOOKED = """
import threading
def past(tensor, me, other):
    from course_lib.observe.recorder import Recorder
    aside, here = Recorder._open._hooks._inside, threading.get_ident()
    both = [torch.empty_like(tensor) for _ in "12"]
    aside.add(here)
    dist.all_gather(both, tensor)
    aside.discard(here)
    return both[other]
"""
FORGED = {
    "messages that never were": WRITTEN,
    "a recorder that notes nothing": DIRECT
    + BACKEND
    + "\nfrom course_lib.observe import recorder\nrecorder.Recorder._communicate = lambda *_: None",
    "a journal of its own": DIRECT
    + BACKEND
    + """
import glob
def write(me):
    journal = glob.glob(f"/ranks/{me}/*/journal")[0]
    send = f'["issue",0,"send",0,{1 - me},0,4,[[1]],"float32",null,true,false,1.0,[],[],null]'
    open(journal, "a").write('["group",0,"0",[0,1]]\\n' + send + "\\n")
was = exchange
def exchange(tensor):
    found = was(tensor); write(dist.get_rank()); return found
""",
    "a result file of its own": """
import glob, os
def exchange(tensor):
    me = dist.get_rank()
    folder = glob.glob(f"/ranks/{me}/*")[0]
    open(f"{folder}/result", "wb").write(b"\\0\\0\\0\\1" + b"1")
    os.rename(f"{folder}/result", f"{folder}/failure")
    return tensor
""",
    "a result that is a link": """
import glob, os
def exchange(tensor):
    me = dist.get_rank()
    folder = glob.glob(f"/ranks/{me}/*")[0]
    os.symlink(f"../{1 - me}/result", f"{folder}/result")
    os.chmod(folder, 0o500)
    return tensor
""",
    "a result that is a folder": """
import glob, os
def exchange(tensor):
    os.mkdir(glob.glob(f"/ranks/{dist.get_rank()}/*")[0] + "/result")
    return tensor
""",
    "a result that is a pipe": """
import glob, os
def exchange(tensor):
    os.mkfifo(glob.glob(f"/ranks/{dist.get_rank()}/*")[0] + "/result")
    return tensor
""",
    "a journal without end": """
import glob
def exchange(tensor):
    journal = open(glob.glob(f"/ranks/{dist.get_rank()}/*/journal")[0], "a")
    journal.write("[" * 100_000 + "\\n"); journal.flush()
    return tensor
""",
    "a journal of other ranks": """
import glob
def exchange(tensor):
    journal = open(glob.glob(f"/ranks/{dist.get_rank()}/*/journal")[0], "a")
    journal.write('["rank",3,1000000000,1000000000]\\n'); journal.flush()
    return tensor
""",
    "events of the launcher": """
import glob
def exchange(tensor):
    ended, early = '{"kind": "ended"}', '{"kind": "result", "rank": 1}'
    for line in (ended, early, "no json", "[]", '{"kind":5}'):
        open(glob.glob("/ranks/*/*/events")[0], "w").write(line + "\\n")
    return tensor
""",
    "results in the wall's own format": """
from course_lib.ranks import serialization
def exchange(tensor):
    null = b"\\0\\0\\0\\4null"
    serialization.codec = serialization.Codec(lambda value: null, lambda payload: None)
    return tensor
""",
    "the run of cases patched": """
from course_lib.checks import run_cases
def exchange(tensor):
    run_cases._Watched.__call__ = lambda self, *a, **k: a[0]
    return tensor
""",
    "torch.equal patched": """
torch.equal = torch.allclose = lambda *_, **__: True
torch.Tensor.__eq__ = lambda *_: torch.tensor(True)
def exchange(tensor):
    return tensor
""",
    "world of one": """
def exchange(tensor):
    dist.get_rank = lambda *_: 0
    dist.get_world_size = lambda *_: 1
    return tensor
""",
}
HONEST = tiny.ANSWERS["exchange"]
ODD_VALUES = {
    "a subclass": "class T(torch.Tensor): pass\n" + HONEST + ".zero_().as_subclass(T)",
    "not a number": HONEST + " * float('nan')",
    "infinite": HONEST + " * float('inf')",
    "minus nothing": HONEST + " * -0.0",
    "meta": HONEST + ".to('meta')",
    "sparse": HONEST + ".to_sparse() * 0",
    "expanded": HONEST + ".expand(3)",
    "lazy conj": HONEST + ".neg()",
    "fake": """
from torch._subclasses import FakeTensorMode
def exchange(tensor):
    with FakeTensorMode():
        return torch.empty(1)
""",
    "equal to all": """
class All(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True
def exchange(tensor):
    return tensor.as_subclass(All)
""",
    "a generator": "def exchange(tensor):\n    yield tensor",
    "a coroutine": "async def exchange(tensor):\n    return tensor",
    "a huge list": "def exchange(tensor):\n    return [tensor] * 10**6",
    "in itself": "def exchange(tensor):\n    found = []\n    found.append(found)\n    return found",
    "a huge number": "def exchange(tensor):\n    return 10 ** 100_000",
    "a huge tensor": "def exchange(tensor):\n    return torch.zeros(1).expand(10**9)",
}
GUESSED = {
    "the seed of the inputs": """
import random
def exchange(tensor):
    for secret in ("", "public", "secret", "exchange", "01_tiny"):
        rng = random.Random(f"{secret}")
        both = [torch.tensor([rng.random()]) for _ in "12"]
        if torch.equal(both[dist.get_rank()], tensor):
            return both[1 - dist.get_rank()]
    return tensor
""",
    "the seeds of the course": """
def exchange(tensor):
    from course_lib.checks import seeds
    return tensor
""",
    "the judge": """
def exchange(tensor):
    from tests.classroom import tiny
from tests.classroom.covert_channels import CHANNELS
    return tensor
""",
    "a copy of the library": """
import glob
def exchange(tensor):
    found = [f for f in glob.glob("/**/*.py", recursive=True) if "judging" in f or "verdict" in f]
    exec(open(found[0]).read())
    return tensor
""",
    "the grader's memory": """
def exchange(tensor):
    open("/proc/1/mem", "rb").read(1)
    return tensor
""",
}
WORN = {
    "just under the time": """
import time
def exchange(tensor):
    time.sleep(2.6)
    return tensor
""",
    "threads that go on": """
import threading, time
def exchange(tensor):
    for _ in range(20):
        threading.Thread(target=lambda: [time.sleep(0.1) for _ in range(10**6)]).start()
    return tensor
""",
    "exit handlers": """
import atexit, os, signal
def exchange(tensor):
    atexit.register(lambda: os._exit(0))
    for number in range(1, 30):
        try: signal.signal(number, signal.SIG_IGN)
        except OSError: pass
    return tensor
""",
    "descriptors closed": """
import os
def exchange(tensor):
    os.closerange(0, 100)
    return tensor
""",
    "descriptors doubled": """
import os
def exchange(tensor):
    for _ in range(900): os.dup(1)
    return tensor
""",
    "a filter that stops itself": """
import ctypes
def exchange(tensor):
    ctypes.CDLL(None).prctl(22, 1, 0, 0, 0)
    return tensor
""",
}
ATTACKS = {
    **{f"past: {name}": WAIT + code + CANCELLED for name, code in PAST.items()},
    **{
        f"unrecorded, {way}: {name}": code + answer
        for name, code in (UNRECORDED | {"hooks put aside": UNHOOKED}).items()
        for way, answer in WAYS.items()
    },
    "unrecorded: messages": MESSAGES + CANCELLED,
    "unrecorded: messages between barriers": BARRIERS + CANCELLED,
    "unrecorded: one message": ONE_WAY,
    **{f"forged: {name}": code for name, code in FORGED.items()},
    **{f"odd: {name}": code for name, code in ODD_VALUES.items()},
    **{f"guessed: {name}": code for name, code in GUESSED.items()},
    **{f"worn: {name}": code for name, code in WORN.items()},
}


@pytest.fixture(scope="module")
def verdicts():
    return verdicts_on(ATTACKS)


def test_there_are_enough_of_them():
    assert len(ATTACKS) >= 60


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_is_gained_and_a_reason_is_given(verdicts, name):
    require_nothing_gained(verdicts[name])


@pytest.mark.parametrize(
    "name",
    [
        "unrecorded, cancelled: the backend itself",
        "unrecorded, cancelled: hooks put aside",
        "unrecorded: messages",
        "unrecorded: messages between barriers",
        "unrecorded: one message",
    ],
)
def test_what_nobody_recorded_is_counted_all_the_same(verdicts, name):
    """The result is right, and its messages matter: only the count on the loopback device tells."""
    verdict = verdicts[name]
    assert "bytes crossed between your ranks" in " ".join(str(verdict).split())
    assert "something else than was recorded" in batch._flag(verdict)  # by a person, too


def test_of_a_group_of_its_own_the_same_is_told_as_in_check(verdicts):
    told = " ".join(str(verdicts["past: a group that torch makes"]).split())
    assert "an answer makes no process group" in told


def test_the_honest_answer_passes_after_them(verdicts):
    assert verdicts["honest"].passed, str(verdicts["honest"])
