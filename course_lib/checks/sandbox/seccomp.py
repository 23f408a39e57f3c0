"""Which system calls a graded rank may make, as a filter that the kernel keeps (seccomp(2)).

`CONFINED`: refused is what reaches past a process: sockets other than TCP and UDP over IP, by which
groups come up, new namespaces and mounts, other processes' memory, kernel keys, and io_uring, which
would do any of these without asking the filter.

`SEALED`, for the time after that: refused is what two processes could agree on without sharing
anything but the machine: new sockets and connections (a port that is taken is a bit), what goes
beside the data of those that are there, and what the kernel tells of their other ends; locks on
files that both can read, waiting on a page of them, news of who opens them, whether they are in
memory, and how busy the machine is.

`deafen`, for the thread that runs an answer and all that it starts: the connections can be read by
gloo's own threads only. A byte that somebody writes between gloo's own reaches nobody.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

CONFINED, SEALED = "confined", "sealed"
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT = 0x20, 0x15, 0x35, 0x45
_RETURN, _AND, _JUMP = 0x06, 0x54, 0x05
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; an argument has 8 bytes
_SET_FILTER, _ALL_THREADS, _THIS_THREAD = 1, 1, 0
_AF_INET, _AF_INET6, _AF_NETLINK = 2, 10, 16
_NEW_NAMESPACES = 0x7E020080  # of clone: all CLONE_NEW* flags
# Of the two machines, in this order: audit architecture, then system calls by name.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)
_SECCOMP, _FCNTL = (317, 277), (72, 25)
# Of fcntl: locks of either kind, who has them, leases, and news of a folder.
_LOCKS = (5, 6, 7, 36, 37, 38, 1024, 1025, 1026)
_REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_by_handle_at": (304, 265),
    "pidfd_getfd": (438, 438),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
}
_NOT_THERE = 0x3FFFFFFF  # the number of a call that a machine does not have
_REFUSED_SEALED = {
    "socket": _SOCKET,
    "bind": (49, 200),
    "connect": (42, 203),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "shutdown": (48, 210),  # a listener that is shut down can call another one
    "getsockopt": (55, 209),
    "flock": (73, 32),
    "inotify_init": (253, _NOT_THERE),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "mincore": (27, 232),
    "cachestat": (451, 451),
    "preadv2": (327, 286),
    "sysinfo": (99, 179),
    "setsockopt": (54, 208),
    "futex_wake": (454, 454),
    "futex_requeue": (456, 456),
}
_URGENT_OR_CALLING = 1 | 0x20000000  # MSG_OOB, MSG_FASTOPEN
_SENDING = {"sendto": ((44, 206), 3), "sendmsg": ((46, 211), 2), "sendmmsg": ((307, 269), 3)}
_FUTEX, _PRIVATE, _COMMAND = (202, 98), 128, 0x7F
_WAKING = (1, 3, 4, 5, 10)  # whoever waits at the same place of a file, in whichever process
# Ways to read a socket, or to have it under another number; the descriptor comes first.
_READING = {
    "read": (0, 63),
    "readv": (19, 65),
    "recvfrom": (45, 207),
    "splice": (275, 76),
    "dup": (32, 23),
    "dup2": (33, _NOT_THERE),
    "dup3": (292, 24),
}
# Those that do the same with what is behind a pointer; gloo uses none of them.
_READING_ANY = {"recvmsg": (47, 212), "recvmmsg": (299, 243), "io_setup": (206, 0)}
_DOUBLING = (0, 1030)  # of fcntl


def install(stage: str) -> None:
    """Keep this process, all its threads and all it starts from those calls. Raises `OSError`."""
    machine = os.uname().machine
    _install(machine, _program(machine) if stage == CONFINED else _sealed(machine), _ALL_THREADS)


def deafen(sockets: Sequence[int]) -> None:
    """Keep this thread, and all that it starts, from reading those sockets. Raises `OSError`."""
    machine = os.uname().machine
    _install(machine, _deaf(machine, sockets), _THIS_THREAD)


def _install(machine: str, program: list[bytes], threads: int) -> None:
    instructions = ctypes.create_string_buffer(b"".join(program))
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    call = _SECCOMP[_MACHINES[machine][1]]
    if libc.syscall(call, _SET_FILTER, threads, ctypes.c_char_p(head)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def _program(machine: str) -> list[bytes]:
    architecture, column = _MACHINES[machine]
    refuse, pretend_old = _return(_ERRNO | errno.EPERM), _return(_ERRNO | errno.ENOSYS)
    program = [_load(_ARCH), *_if_not(architecture, _return(_KILL)), _load(_NUMBER)]
    # The third set of numbers of x86_64 (x32) would get round all that follows.
    program += [_step(_AT_LEAST, 0x40000000, 0, 1), refuse]
    for numbers in _REFUSED.values():
        program += _if(numbers[column], [refuse])
    program += _if(_CLONE3[column], [pretend_old])  # its flags are behind a pointer: clone is used
    program += _if(
        _CLONE[column],
        [_load(_ARGUMENTS), _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1), refuse, _return(_ALLOW)],
    )
    route_only = [_load(_ARGUMENTS + 16), *_if(0, [_return(_ALLOW)]), refuse]
    program += _if(
        _SOCKET[column],
        [
            _load(_ARGUMENTS),
            *_if(_AF_INET, [_return(_ALLOW)]),
            *_if(_AF_INET6, [_return(_ALLOW)]),
            *_if(_AF_NETLINK, route_only),  # by which a program finds its interfaces
            refuse,
        ],
    )
    return [*program, _return(_ALLOW)]


def _sealed(machine: str) -> list[bytes]:
    _, column = _MACHINES[machine]
    refuse = _return(_ERRNO | errno.EPERM)
    program = [_load(_NUMBER)]  # of this machine: `_program` has seen to that
    for numbers in _REFUSED_SEALED.values():
        program += _if(numbers[column], [refuse])
    locks = [step for command in _LOCKS for step in _if(command, [refuse])]
    program += _if(_FCNTL[column], [_load(_ARGUMENTS + 8), *locks, _return(_ALLOW)])
    for numbers, place in _SENDING.values():
        flags = [_load(_ARGUMENTS + 8 * place), _step(_ANY_BIT, _URGENT_OR_CALLING, 0, 1), refuse]
        program += _if(numbers[column], [*flags, _return(_ALLOW)])
    nobody = _return(_ERRNO | errno.EFAULT)  # what glibc takes as it is
    waking = [step for command in _WAKING for step in _if(command, [nobody])]
    own = [_load(_ARGUMENTS + 8), _step(_ANY_BIT, _PRIVATE, 0, 1), _return(_ALLOW)]
    program += _if(_FUTEX[column], [*own, _step(_AND, _COMMAND), *waking, _return(_ALLOW)])
    return [*program, _return(_ALLOW)]


def _deaf(machine: str, sockets: Sequence[int]) -> list[bytes]:
    _, column = _MACHINES[machine]
    refuse = _return(_ERRNO | errno.EPERM)
    one_of_them = [_load(_ARGUMENTS)]
    for number in sockets:
        one_of_them += _if(number, [refuse])
    one_of_them.append(_return(_ALLOW))
    program = [_load(_NUMBER)]
    for numbers in _READING_ANY.values():
        program += _if(numbers[column], [refuse])
    for numbers in _READING.values():
        program += _if(numbers[column], one_of_them)
    doubling = [_load(_ARGUMENTS + 8)]
    for command in _DOUBLING:
        doubling += _if(command, one_of_them)
    program += _if(_FCNTL[column], [*doubling, _return(_ALLOW)])
    return [*program, _return(_ALLOW)]


def _if(value: int, then: list[bytes]) -> list[bytes]:
    # A comparison leaps over 255 steps at most, a jump over any number.
    return [_step(_EQUAL, value, 1, 0), _step(_JUMP, len(then)), *then]


def _if_not(value: int, then: bytes) -> list[bytes]:
    return [_step(_EQUAL, value, 1, 0), then]


def _load(offset: int) -> bytes:
    return _step(_LOAD, offset)


def _return(value: int) -> bytes:
    return _step(_RETURN, value)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
