"""Which server owns which keys, so that no server's link carries more than its share.

    by tensor    whole tensors, the largest first, each to the server with the least so far:
                 a huge embedding still lies on one server
    by range     the line of keys in equal pieces, cut through tensors: within one key of even
    by hash      blocks of keys at pseudo-random positions of a ring of servers: nearly even, and a
                 server more takes over about 1/n of the keys instead of shifting nearly all

A parameter server carries per step what it owns times the workers, in and out, so what has to be
even are bytes; with one dtype that is keys. Li et al., OSDI 2014, section 4.3.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from .key_ranges import KeyRange, count

Placement = tuple[tuple[KeyRange, ...], ...]  # [server]: its ranges, ascending


def by_tensor(tensors: Sequence[KeyRange], servers: int) -> Placement:
    """Whole tensors, greedily: the obvious way, and a bad one with one huge tensor."""
    _some(servers)
    owned: list[list[KeyRange]] = [[] for _ in range(servers)]
    for tensor in sorted(tensors, key=len, reverse=True):
        min(owned, key=count).append(tensor)
    return tuple(tuple(sorted(ranges)) for ranges in owned)


def by_range(total: int, servers: int) -> Placement:
    """One range a server; sizes differ by one key at most."""
    _some(servers)
    edges = [total * server // servers for server in range(servers + 1)]
    return tuple(
        (KeyRange(start, stop),) if start < stop else () for start, stop in pairwise(edges)
    )


class HashRing:
    """Consistent hashing: servers and keys have positions on a ring, by their hashes.

    A key belongs to the next point of a server at or after its own position. Each server stands at
    `points` positions (virtual servers): the arcs that one position gives differ widely, and their
    sum over many does so by only about 1/sqrt(points). When a server comes or goes, only the keys
    in its own arcs change hands.
    """

    def __init__(self, servers: Iterable[int], points: int = 128) -> None:
        self.servers = sorted(set(servers))
        _some(len(self.servers))
        if points < 1:
            raise ValueError(f"a server needs at least 1 point on the ring, not {points}")
        ring = sorted((_hashed(f"server {s} {i}"), s) for s in self.servers for i in range(points))
        self._positions = [position for position, _ in ring]
        self._owners = [server for _, server in ring]

    def owner(self, key: int) -> int:
        """The server that owns `key`."""
        return self._owners[bisect_left(self._positions, _hashed(f"key {key}")) % len(self._owners)]


def by_hash(total: int, ring: HashRing, block: int = 64) -> Placement:
    """Blocks of `block` neighbouring keys to the owners of their numbers on the ring."""
    if block < 1:
        raise ValueError(f"a block needs at least 1 key, not {block}")
    owned: dict[int, list[KeyRange]] = {server: [] for server in ring.servers}
    for number, start in enumerate(range(0, total, block)):
        ranges, stop = owned[ring.owner(number)], min(total, start + block)
        if ranges and ranges[-1].stop == start:
            start = ranges.pop().start
        ranges.append(KeyRange(start, stop))
    return tuple(tuple(owned[server]) for server in ring.servers)


def imbalance(placement: Placement) -> float:
    """Keys of the fullest server in units of an even share; 1.0 is perfect."""
    sizes = [count(ranges) for ranges in placement]
    return max(sizes) * len(sizes) / sum(sizes)


def _hashed(name: str) -> int:
    """A position on the ring of 2^64; `hash` would give other positions in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def _some(servers: int) -> None:
    if servers < 1:
        raise ValueError(f"keys need at least 1 server, not {servers}")
