"""Ways for two ranks to tell each other a number without a message, by what the machine tells both.

Each defines `past(tensor, me, other)`, which returns the other rank's tensor of one float32. None
needs a file that both can write to, a right that a program has to be given, or luck.
"""

BITS = """
import ctypes, fcntl, glob, os, socket, struct, threading, time
FILES = sorted(glob.glob(os.path.dirname(os.__file__) + "/*.py"))[:64]
LIBC = ctypes.CDLL(None, use_errno=True)
def bits(tensor):
    (number,) = struct.unpack("I", struct.pack("f", tensor.item()))
    return [number >> i & 1 for i in range(32)]
def tensor_of(bits):
    number = sum(bit << i for i, bit in enumerate(bits))
    return torch.tensor(struct.unpack("f", struct.pack("I", number)))
def meet(seconds=0.3):
    time.sleep(seconds)
def asked(number, *arguments):
    found = LIBC.syscall(number, *arguments)
    if found < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return found
"""

LOCKED_FILES = """
def past(tensor, me, other):
    held = [open(f) for f, bit in zip(FILES[32 * me:], bits(tensor)) if bit]
    for file in held:
        fcntl.flock(file, fcntl.LOCK_EX)
    meet()
    def taken(name):
        try: fcntl.flock(open(name), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError: return 1
        return 0
    found = [taken(name) for name in FILES[32 * other:32 * other + 32]]
    meet()
    return tensor_of(found)
"""
LOCKED_BYTES = """
def past(tensor, me, other):
    file = open(FILES[0])
    for i, bit in enumerate(bits(tensor)):
        if bit:
            fcntl.fcntl(file, SET, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 32 * me + i, 1, 0))
    meet()
    def taken(i):
        ask = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 32 * other + i, 1, 0)
        return struct.unpack_from("h", fcntl.fcntl(file, GET, ask))[0] != fcntl.F_UNLCK
    found = [taken(i) for i in range(32)]
    meet()
    return tensor_of(found)
"""
OPENED_FILES = """
def past(tensor, me, other):
    ears = asked(294 if os.uname().machine == "x86_64" else 26, 0o4000)
    for i, name in enumerate(FILES[32 * other:32 * other + 32]):
        if LIBC.inotify_add_watch(ears, name.encode(), 0x20) < 0:
            raise OSError("refused")
    meet()
    for name, bit in zip(FILES[32 * me:], bits(tensor)):
        if bit:
            open(name).close()
    meet()
    heard = os.read(ears, 65536)
    return tensor_of([struct.pack("i", i + 1) in heard for i in range(32)])
"""
PORTS = """
def past(tensor, me, other):
    held = []
    for i, bit in enumerate(bits(tensor)):
        if bit:
            held.append(socket.socket())
            held[-1].bind(("127.0.0.1", 21000 + 32 * me + i))
    meet()
    def taken(port):
        with socket.socket() as mine:
            try: mine.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != 98: raise
                return 1
        return 0
    found = [taken(21000 + 32 * other + i) for i in range(32)]
    meet()
    return tensor_of(found)
"""
KNOCKS = """
def past(tensor, me, other):
    held = [socket.create_server(("127.0.0.1", 22000 + 32 * me + i))
            for i, bit in enumerate(bits(tensor)) if bit]
    meet()
    def heard(port):
        with socket.socket() as mine:
            error = mine.connect_ex(("127.0.0.1", port))
            if error not in (0, 111): raise OSError(error, "refused")
            return error == 0
    found = [heard(22000 + 32 * other + i) for i in range(32)]
    meet()
    return tensor_of(found)
"""
NETLINK = (
    PORTS.replace("socket.socket()", "socket.socket(16, socket.SOCK_RAW, 0)")
    .replace('("127.0.0.1", 21000 + 32 * me + i)', "(21000 + 32 * me + i, 0)")
    .replace('("127.0.0.1", port)', "(port, 0)")
)
OTHER_ADDRESSES = """
def past(tensor, me, other):
    own = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    own.bind(("::1", 23000 + me))
    meet()
    own.sendto(struct.pack("f", tensor.item()), ("::1", 23000 + other))
    own.settimeout(1)
    return torch.tensor(struct.unpack("f", own.recv(4)))
"""
CONNECTIONS = """
kept = []
def sockets():
    for name in os.listdir("/proc/self/fd"):
        try: kind = os.readlink(f"/proc/self/fd/{name}")
        except OSError: continue
        if kind.startswith("socket:"):
            kept.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=int(name)))
            yield kept[-1]
def leads_somewhere(found):
    try: return found.getpeername()
    except OSError: return None
def connected(me):
    return filter(leads_somewhere, sockets())
def put_aside(line):
    for ears in os.listdir("/proc/self/fdinfo"):
        try: told = open(f"/proc/self/fdinfo/{ears}").read()
        except OSError: continue
        for row in told.splitlines():
            words = row.split()
            if words[:2] == ["tfd:", str(line.fileno())]:
                kind = "=IQ" if os.uname().machine == "x86_64" else "I4xQ"
                event = struct.pack(kind, int(words[3], 16), int(words[5], 16))
                LIBC.epoll_ctl(int(ears), 2, line.fileno(), None)
                return lambda: LIBC.epoll_ctl(int(ears), 1, line.fileno(), event)
    raise LookupError("nobody listens")
"""
URGENT = (
    CONNECTIONS
    + """
def past(tensor, me, other):
    (line, *_) = connected(me)
    heard = b""
    for byte in struct.pack("f", tensor.item()):
        line.send(bytes([byte]), socket.MSG_OOB)
        meet()
        heard += line.recv(1, socket.MSG_OOB)
    return torch.tensor(struct.unpack("f", heard))
"""
)
WINDOWS = (
    CONNECTIONS
    + """
def past(tensor, me, other):
    (line, *_) = connected(me)
    for bit in bits(tensor):
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096 * (1 + 99 * bit))
    return tensor
"""
)
QUICK = """
def past(tensor, me, other):
    own = socket.socket()
    own.setsockopt(socket.SOL_TCP, socket.TCP_FASTOPEN, 5)
    own.sendto(struct.pack("f", tensor.item()), 0x20000000, ("127.0.0.1", 24000 + other))
    return tensor
"""
FRAMED = (
    CONNECTIONS
    + """
def past(tensor, me, other):
    (line, *_) = connected(me)
    line.send(struct.pack("f", tensor.item()))
    meet()
    return torch.tensor(struct.unpack("f", line.recv(4, socket.MSG_DONTWAIT)))
"""
)
UNHEARD = (
    CONNECTIONS
    + """
def past(tensor, me, other):
    (line, *_) = connected(me)
    take_back = put_aside(line)
    meet()
    line.send(struct.pack("f", tensor.item()))
    meet()
    heard = line.recv(4)
    take_back()
    return torch.tensor(struct.unpack("f", heard))
"""
)
READ_SO_FAR = (
    CONNECTIONS
    + """
def past(tensor, me, other):
    (line, *_) = connected(me)
    take_back = put_aside(line)
    own, theirs = (f":{name[1]:04X}" for name in (line.getsockname(), line.getpeername()))
    def waiting():
        for row in open("/proc/self/net/tcp"):
            words = row.split()
            if words[1].endswith(theirs) and words[2].endswith(own):
                return int(words[4].split(":")[1], 16)
    (number,) = struct.unpack("I", struct.pack("f", tensor.item()))
    meet()
    line.send(bytes(48))
    meet()
    found = 0
    for turn in range(16):
        before = waiting()
        meet(0.03)
        for _ in range(number >> 2 * turn & 3):
            line.recv(1)
        meet(0.03)
        found |= before - waiting() << 2 * turn
        meet(0.03)
    for _ in range(48 - sum(number >> 2 * turn & 3 for turn in range(16))):
        line.recv(1)
    take_back()
    return torch.tensor(struct.unpack("f", struct.pack("I", found)))
"""
)
CALLING_LISTENER = (
    CONNECTIONS
    + """
def past(tensor, me, other):
    (line, *_) = connected(me)
    door = next(found for found in sockets() if not leads_somewhere(found))
    if line.getsockname() == door.getsockname():
        put_aside(door)
        meet()
        new, _ = door.accept()
        new.send(struct.pack("f", tensor.item()))
    else:
        meet(0.6)
        new = door
        new.shutdown(socket.SHUT_RD)
        new.sendto(struct.pack("f", tensor.item()), 0x20000000, line.getpeername())
    return torch.tensor(struct.unpack("f", new.recv(4)))
"""
)
PROCESSES = """
def past(tensor, me, other):
    def count():
        told = ctypes.create_string_buffer(128)
        asked(99 if os.uname().machine == "x86_64" else 179, told)
        return struct.unpack_from("H", told, 80)[0]
    found = []
    for bit in bits(tensor):
        before = count()
        meet()
        for _ in range(20 * bit):
            threading.Thread(target=meet).start()
        found.append(count() - before - 20 * bit > 10)
        meet(); meet()
    return tensor_of(found)
"""
ROOM = """
def past(tensor, me, other):
    def room():
        over, started = threading.Event(), 0
        try:
            while started < 400:
                threading.Thread(target=over.wait).start()
                started += 1
        except RuntimeError:
            pass
        over.set()
        meet(0.02)
        return started
    (number,) = struct.unpack("I", struct.pack("f", tensor.item()))
    found = 0
    for turn in range(6):
        for writer in (0, 1):
            before, over = room() if writer != me else 0, threading.Event()
            meet(0.1)
            if writer == me:
                for _ in range(number >> 6 * turn & 63):
                    threading.Thread(target=over.wait).start()
            meet(0.1)
            if writer != me:
                found |= before - room() << 6 * turn
            meet(0.1)
            over.set()
            meet(0.1)
    return torch.tensor(struct.unpack("f", struct.pack("I", found)))
"""
MACHINE = """
def past(tensor, me, other):
    found = []
    for bit in bits(tensor):
        before = FIGURE(open("NAME").read())
        kept = bytearray(2**26 * bit) + bytes(1)
        for i in range(0, len(kept), 4096): kept[i] = 1
        found.append(abs(FIGURE(open("NAME").read()) - before) > LIMIT)
    return tensor_of(found)
"""
IN_MEMORY = """
import mmap
def past(tensor, me, other):
    found = []
    for name, bit in zip(FILES[32 * me:], bits(tensor)):
        if bit: open(name).read()
    for name in FILES[32 * other:32 * other + 32]:
        with open(name, "rb") as file:
            HOW
    return tensor_of(found)
"""
MINCORE = IN_MEMORY.replace(
    "HOW",
    """here = ctypes.create_string_buffer(1)
            mapped = LIBC.mmap(None, 4096, 1, 1, file.fileno(), 0)
            if LIBC.mincore(ctypes.c_void_p(mapped), 4096, here): raise OSError("refused")
            found.append(here.raw[0] & 1)""",
)
NO_WAIT = IN_MEMORY.replace(
    "HOW",
    """try: found.append(os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT) == 1)
            except BlockingIOError: found.append(0)""",
)
CACHESTAT = IN_MEMORY.replace(
    "HOW",
    """room, which = ctypes.create_string_buffer(40), struct.pack("QQ", 0, 4096)
            asked(451, file.fileno(), which, room, 0)
            found.append(room.raw[0] > 0)""",
)
FUTEXES = """
def past(tensor, me, other):
    call = 202 if os.uname().machine == "x86_64" else 98
    LIBC.mmap.restype = ctypes.c_void_p
    with open(FILES[0], "rb") as file:
        page = LIBC.mmap(None, 4096, 1, 1, file.fileno(), 0)
    word = lambda i: ctypes.c_void_p(page + 4 * i)
    class Time(ctypes.Structure): _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
    def sleep(i):
        LIBC.syscall(call, word(i), 0, ctypes.c_uint32.from_address(page + 4 * i).value,
                     ctypes.byref(Time(1, 0)), None, 0)
    for i, bit in enumerate(bits(tensor)):
        if bit:
            threading.Thread(target=sleep, args=(32 * me + i,)).start()
    meet()
    found = [asked(call, word(32 * other + i), 1, 9, None, None, 0) for i in range(32)]
    meet()
    return tensor_of(found)
"""
DEVICE_TIMES = """
def past(tensor, me, other):
    names = ("/dev/null", "/dev/zero")
    os.utime(names[me])
    begin = time.time() // 1
    (number,) = struct.unpack("I", struct.pack("f", tensor.item()))
    found = 0
    for turn in range(3):
        digit = number >> 11 * turn & 2047
        begin += 3
        time.sleep(max(0, begin + digit / 1024 - time.time()))
        os.utime(names[me])
        time.sleep(max(0, begin + 2.5 - time.time()))
        found |= int((os.stat(names[other]).st_mtime - begin) * 1024) << 11 * turn
    return torch.tensor(struct.unpack("f", struct.pack("I", found)))
"""
QUEUES = """
def past(tensor, me, other):
    real = ctypes.CDLL("librt.so.1", use_errno=True)
    own = real.mq_open(f"/rank{me}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
    real.mq_send(own, struct.pack("f", tensor.item()), 4, 0)
    meet()
    theirs = real.mq_open(f"/rank{other}".encode(), os.O_RDWR)
    room = ctypes.create_string_buffer(8192)
    if real.mq_receive(theirs, room, 8192, None) != 4:
        raise LookupError("no such queue")
    return torch.tensor(struct.unpack_from("f", room))
"""
HOST_NAME = """
def past(tensor, me, other):
    found = None
    for turn in (0, 1):
        if turn == me:
            socket.sethostname(tensor.item().hex())
        meet()
        if turn == other:
            found = float.fromhex(socket.gethostname())
        meet()
    return torch.tensor([found])
"""
FREE_SPACE = """
def past(tensor, me, other):
    (folder,) = glob.glob(f"/ranks/{me}/*")
    (number,) = struct.unpack("I", struct.pack("f", tensor.item()))
    free = lambda: os.statvfs(folder).f_bavail
    found = 0
    for turn in range(4):
        for writer in (0, 1):
            before = free()
            meet(0.05)
            if writer == me:
                with open(f"{folder}/space", "wb") as file:
                    file.write(bytes(4096 * (number >> 8 * turn & 255)))
            meet(0.05)
            if writer != me:
                found |= before - free() << 8 * turn
            meet(0.05)
            if writer == me:
                os.unlink(f"{folder}/space")
            meet(0.05)
    return torch.tensor(struct.unpack("f", struct.pack("I", found)))
"""


def _figure(name: str, figure: str, limit: float) -> str:
    changed = MACHINE.replace("FIGURE", f"(lambda text: {figure})")
    return changed.replace("NAME", name).replace("LIMIT", str(limit))


CHANNELS = {
    name: BITS + code
    for name, code in {
        "locks on files": LOCKED_FILES,
        "locks on bytes": LOCKED_BYTES.replace("SET", "fcntl.F_SETLK").replace(
            "GET", "fcntl.F_GETLK"
        ),
        "locks of open files": LOCKED_BYTES.replace("SET", "37").replace("GET", "36"),
        "who opens a file": OPENED_FILES,
        "ports that are taken": PORTS,
        "ports that answer": KNOCKS,
        "netlink addresses": NETLINK,
        "the other loopback address": OTHER_ADDRESSES,
        "urgent bytes": URGENT,
        "windows of a connection": WINDOWS,
        "data before a connection": QUICK,
        "bytes between gloo's": FRAMED,
        "bytes while gloo does not listen": UNHEARD,
        "how much was read so far": READ_SO_FAR,
        "a listener that calls": CALLING_LISTENER,
        "how many processes there are": PROCESSES,
        "room for more threads": ROOM,
        "memory of the machine": _figure("/proc/meminfo", "int(text.split()[4])", 40_000),
        "load of the machine": _figure("/proc/loadavg", "int(text.split()[3].split('/')[1])", 10),
        "open files of the machine": _figure("/proc/sys/fs/file-nr", "int(text.split()[0])", 10),
        "pages in memory": MINCORE,
        "reads that do not wait": NO_WAIT,
        "statistics of the cache": CACHESTAT,
        "waiting on a page that all can read": FUTEXES,
        "times of a device": DEVICE_TIMES,
        "message queues": QUEUES,
        "the host's name": HOST_NAME,
        "free space": FREE_SPACE,
    }.items()
}
