"""A sandbox around a process that runs somebody else's code (Linux).

Where the system lets us, the process gets namespaces of its own: a file system in which only Python
and a copy of the course's library exist, read-only, and one small folder in memory to write to; a
loopback device and no other network; no sight of other processes, and the certain end of all it
started. As root it loses its rights and becomes a user of its own; without root it does the same
inside a user namespace. Limits on memory, processor time, processes and file sizes hold either way.

namespaces(7), pivot_root(2), mount_namespaces(7), capabilities(7), getrlimit(2).
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import stat
import struct
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.ranks import prctl

from .resource_limits import Limits, set_limits

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
_NEWPID, _NEWNET = 0x20000000, 0x40000000
_NAMESPACES = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 0x4000, 0x40000
_NOSYMFOLLOW = 256  # results are read from there: none may turn out to be another file
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_LAST_CAPABILITY = 40
_DEVICES = ("null", "zero", "full", "random", "urandom")
_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin")
_LOADER = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime")
WORK = "/sandbox"  # the folder that can be written to, inside
RANKS, PLACES = "/ranks", 16  # folders for what ranks leave, and how many there are
SHARES = 8  # of the space for files, a rank has one in each place that it can write to


@dataclass(frozen=True)
class Sandbox:
    """What a process is locked into.

    visible: folders that it may read, besides the system's and Python's.
    user: the number of the user that it becomes, if root starts it.
    namespaces: whether the system lets us use them (`available`).
    """

    visible: tuple[str, ...]
    user: int
    namespaces: bool
    limits: Limits = field(default_factory=Limits)


def available() -> bool:
    """Whether this system lets this user make the namespaces, tried in a child."""
    if sys.platform != "linux" or os.uname().machine not in _PIVOT_ROOT:
        return False
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            leave_namespaces()
            if not os.fork():
                _new_root(Sandbox((), 65534, True))
                _loopback_up()
                _give_up_rights(65534)
                own_namespaces()  # for each rank
                os._exit(0)
            os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def hidden_from_others() -> str:
    """The first folder on the way to Python that other users may not enter; "" if there is none.

    Without namespaces, a run that root starts cannot find Python behind it.
    """
    for prefix in (sys.base_prefix, sys.prefix):
        for folder in reversed([Path(prefix).resolve(), *Path(prefix).resolve().parents]):
            if not folder.stat().st_mode & stat.S_IXOTH:
                return str(folder)
    return ""


def leave_namespaces() -> None:
    """Part from the others; the next child is the first process of a world of its own."""
    if os.geteuid() == 0:
        try:
            _call("unshare", _NAMESPACES)
        except PermissionError:  # root of a container, without the right to do so
            pass
        else:
            return
    _unshare_as(0, _NAMESPACES)


def own_namespaces() -> None:
    """Part from the others inside the sandbox, network aside; the next child is alone.

    No rights are needed, and the process has the same number afterwards.
    """
    _unshare_as(os.geteuid(), _NAMESPACES & ~_NEWNET)


def _unshare_as(name: int, namespaces: int) -> None:
    """Unshare in a new user namespace, in which this user has the number `name`."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _NEWUSER | namespaces)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{name} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{name} {group} 1")


def enter(sandbox: Sandbox, folder: str) -> None:
    """Put this process in the sandbox, for good; `folder` serves where there are no namespaces.

    Its current folder is afterwards the one that it may write to.
    """
    temporary = folder
    if sandbox.namespaces:
        _new_root(sandbox)
        _loopback_up()
        _send_nothing_twice()
        # Apart from each other: a run that fills its folder can still say so.
        folder, temporary = WORK, "/dev/shm"
    elif os.geteuid() == 0:
        os.chown(folder, sandbox.user, sandbox.user)
    os.chdir(folder)
    tempfile.tempdir = temporary
    os.environ.update(HOME=folder, TMPDIR=temporary, USER="learner", LOGNAME="learner")
    set_limits(sandbox.limits)
    _give_up_rights(sandbox.user)
    os.umask(0o077)


def _new_root(sandbox: Sandbox) -> None:
    """A file system with what Python needs and `sandbox.visible`, and nothing else."""
    _mount(None, "/", None, _REC | _PRIVATE)
    root = Path("/tmp")  # exists everywhere, and is hidden by what is mounted on it
    visible = [*_SYSTEM, sys.base_prefix, sys.prefix, *sandbox.visible]
    held = {path: os.open(path, os.O_PATH) for path in visible if os.path.isdir(path)}
    held |= {path: os.open(path, os.O_PATH) for path in _LOADER if os.path.exists(path)}
    held |= {f"/dev/{name}": os.open(f"/dev/{name}", os.O_PATH) for name in _DEVICES}
    _mount("tmpfs", str(root), "tmpfs", _NOSUID, "size=16m,mode=755")
    for path, fd in held.items():
        if _inside_another(path, held):
            continue
        target = Path(f"{root}{path}")
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.islink(path) and path in _SYSTEM:
            target.symlink_to(os.readlink(path))
            continue
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            target.mkdir(exist_ok=True)
        else:
            target.touch()
        _mount(f"/proc/self/fd/{fd}", str(target), None, _BIND | _REC)
        # A device is written to nevertheless; what cannot be written are its times.
        _mount(None, str(target), None, _BIND | _REMOUNT | _RDONLY | _flags(target))
    for fd in held.values():
        os.close(fd)
    real_root = os.geteuid() == 0 and _is_real_root()
    owner = f"uid={sandbox.user},gid={sandbox.user}," if real_root else ""
    size = f"{owner}size={sandbox.limits.disk},mode=700,nr_inodes=20000"
    own = f"{owner}size={sandbox.limits.disk // SHARES},mode=700,nr_inodes=4000"
    places = [f"{RANKS}/{number}" for number in range(PLACES)]
    for folder in ("/proc", "/dev/shm", WORK, "/old", *places):
        Path(f"{root}{folder}").mkdir(parents=True)
    for place in places:  # each on a disk of its own: how full that is tells nobody else anything
        _mount("tmpfs", f"{root}{place}", "tmpfs", _NOSUID | _NODEV | _NOSYMFOLLOW, own)
    _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV)
    _mount("tmpfs", f"{root}{WORK}", "tmpfs", _NOSUID | _NODEV, size)
    _mount("tmpfs", f"{root}/dev/shm", "tmpfs", _NOSUID | _NODEV | _NOSYMFOLLOW, size)
    _call("syscall", _PIVOT_ROOT[os.uname().machine], os.fsencode(root), os.fsencode(root / "old"))
    os.chdir("/")
    _call("umount2", b"/old", _DETACH)
    os.rmdir("/old")
    _mount(None, "/", None, _REMOUNT | _BIND | _RDONLY)


def _inside_another(path: str, held: dict[str, int]) -> bool:
    return any(path != other and path.startswith(f"{other}/") for other in held)


def _is_real_root() -> bool:
    """Whether user 0 here is user 0 of the machine, and may give files to others."""
    first = Path("/proc/self/uid_map").read_text().split()
    return int(first[2]) > 1


def _flags(path: Path) -> int:
    """The flags of a mount that a user namespace may not take away."""
    kept = os.statvfs(path).f_flag
    flags = kept & (_NOSUID | _NODEV | os.ST_NOEXEC)
    for flag, given in ((os.ST_NOATIME, 1024), (os.ST_NODIRATIME, 2048), (os.ST_RELATIME, 1 << 21)):
        flags |= given if kept & flag else 0
    return flags


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        name, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", name, flags | _IFF_UP))


def _send_nothing_twice() -> None:
    """Have the kernel wait long before it sends a packet again, since nothing is lost on loopback.

    On a busy machine its probes for lost packets would cross on top of what a run sends, as
    `loopback_traffic` counts it.
    ip-sysctl: tcp_early_retrans, and from Linux 6.11 on tcp_rto_min_us.
    """
    for name, value in (("tcp_early_retrans", 0), ("tcp_rto_min_us", 2_000_000)):
        with contextlib.suppress(OSError):
            Path(f"/proc/sys/net/ipv4/{name}").write_text(str(value))


def _give_up_rights(user: int) -> None:
    root = os.geteuid() == 0
    if root and _is_real_root():
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    elif root:  # of a user namespace only: there the rights go, and the number stays
        drop_rights()
    prctl.never_gain_rights()
    prctl.own_its_proc()  # a change of user takes /proc/self away from its own owner


def drop_rights() -> None:
    """Give up what a process may do in a namespace of its own, for good."""
    for capability in range(_LAST_CAPABILITY + 1):
        prctl.drop_capability(capability)
    header = struct.pack("Ii", 0x20080522, 0)
    _call("capset", header, bytes(24))
    prctl.never_gain_rights()
    prctl.own_its_proc()


def mount_tmpfs(folder: Path, options: str) -> None:
    """An empty folder in memory, over what was to be seen there."""
    _mount("tmpfs", str(folder), "tmpfs", _NOSUID | _NODEV | _NOSYMFOLLOW, options)


def mount_proc() -> None:
    """/proc of this process's own namespace, without what it tells of the whole machine."""
    try:
        _mount("proc", "/proc", "proc", _NOSUID | _NODEV, "subset=pid")
    except OSError:  # Linux before 5.8
        _mount("proc", "/proc", "proc", _NOSUID | _NODEV)


def bind(source: str, target: Path, read_only: bool = False) -> None:
    """Let `source` be seen at `target`; with `read_only`, and nothing be changed there."""
    _mount(source, str(target), None, _BIND)
    if read_only:
        _mount(None, str(target), None, _BIND | _REMOUNT | _RDONLY | _flags(target))


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    names = [None if name is None else os.fsencode(name) for name in (source, target, kind)]
    _call("mount", *names, ctypes.c_ulong(flags), data.encode() or None)


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
