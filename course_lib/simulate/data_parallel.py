"""A data parallel step: layers on the device, all-reduces of their gradients beside it.

    device    F1 F2 F3 B3---- B2---- B1----
    network                  bucket 0  bucket 1  bucket 2

A bucket leaves when the gradients of all its layers are there and the one before it has arrived: a
network carries one all-reduce at a time. What does not fit beside backward makes the step longer.
All ranks do the same, so one of them is played, on the same engine as schedules and replays.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

from course_lib.observe.timeline import COMMUNICATION, COMPUTE, Timeline, Track
from course_lib.observe.trace import Trace

from .cluster import dgx_a100
from .engine import Lane, run
from .hardware import Link
from .replaying import replay


class Layer(NamedTuple):
    """Seconds of the passes (or any unit of time), and bytes of the gradient."""

    name: str
    forward: float
    backward: float
    nbytes: float


def bucket_layers(
    layers: Sequence[Layer], bucket_bytes: float, first_bucket_bytes: float | None = None
) -> list[list[int]]:
    """Indices of layers, last layer first: neighbours share a bucket while they fit.

    A layer that is larger than a bucket gets its own. `first_bucket_bytes` is the size of the first
    bucket, where it is smaller than the others.
    """
    if bucket_bytes <= 0:
        raise ValueError(f"bucket_bytes = {bucket_bytes} must be more than 0")
    buckets: list[list[int]] = []
    room = 0.0
    for index in reversed(range(len(layers))):
        if not buckets or layers[index].nbytes > room:
            buckets.append([])
            room = bucket_bytes
            if len(buckets) == 1 and first_bucket_bytes is not None:
                room = min(first_bucket_bytes, bucket_bytes)
        buckets[-1].append(index)
        room -= layers[index].nbytes
    return buckets


def data_parallel_step(
    layers: Sequence[Layer],
    buckets: Sequence[Sequence[int]],
    all_reduce: Callable[[float], float],
) -> Timeline:
    """The timeline of one step; `all_reduce(nbytes)` is how long one takes.

    buckets: indices of `layers`, in order of departure; without any, nothing is sent.
    """
    sent = sorted(index for bucket in buckets for index in bucket)
    if buckets and sent != list(range(len(layers))):
        raise ValueError(f"buckets hold layers {sent}, and there are {len(layers)} layers")
    device, network = Lane(), Lane()
    passes = [(f"F {layer.name}", layer.forward) for layer in layers]
    passes += [(f"B {layer.name}", layer.backward) for layer in reversed(layers)]
    for task, (_, seconds) in enumerate(passes):
        device.add(task, seconds)
    for number, bucket in enumerate(buckets, len(passes)):
        last = min(bucket)  # backward comes to it after the others
        nbytes = sum(layers[index].nbytes for index in bucket)
        network.add(number, all_reduce(nbytes), need=2 * len(layers) - 1 - last)
    played = run([device, network], len(passes) + len(buckets))
    names = [name for name, _ in passes]
    names += [_bucket_name([layers[index].name for index in bucket]) for bucket in buckets]
    tracks = [
        Track(
            0,
            track,
            [played.starts[task] for task in lane.tasks],
            [played.ends[task] for task in lane.tasks],
            [names[task] for task in lane.tasks],
        )
        for track, lane in ((COMPUTE, device), (COMMUNICATION, network))
    ]
    return Timeline(1, tracks)


def _bucket_name(layers: Sequence[str]) -> str:
    """ "bucket 7", "bucket 7–4": the layers whose gradients a bucket carries."""
    ends = [layer.split()[-1] for layer in (layers[0], layers[-1])]
    return "bucket " + "–".join(ends[: len(layers)])


def on_machines(
    trace: Trace,
    passes: Sequence[tuple[str, float]],
    seconds: Mapping[str, float],
    layer_bytes: int,
    machines: int,
    link: str | Link,
) -> Timeline:
    """A recorded step of equal layers, as it would be on so many machines with one GPU each.

    trace    of some ranks that all do the same
    passes   (name, when it began) of each pass on rank 0: "F 0", "F 1", ..., "B 0"
    seconds  that a pass takes, by its first letter
    layer_bytes  of a layer's gradient; buckets carry whole layers, from the last to the first
    Only rank 0 is in the timeline, as in `data_parallel_step`.
    """
    ours = replace(dgx_a100, devices_per_node=1, adapters=1, nodes=machines)
    compute = [
        SimpleNamespace(rank=rank, name=name, start=start, seconds=seconds[name[0]])
        for rank in range(machines)
        for name, start in passes
    ]
    cluster = ours.with_links(between=link)
    played = replay(widened(trace, machines), cluster, compute=compute)
    return Timeline(1, [_named(track, layer_bytes) for track in played.tracks if track.rank == 0])


def _named(track: Track, layer_bytes: int) -> Track:
    """A track of recorded all-reduces under the names of the layers that they carry."""
    if track.name != COMMUNICATION:
        return track
    many = [event.nbytes // layer_bytes for event in track.events]
    ends = [sum(many[:k]) for k in range(len(many) + 1)]
    last_first = [str(layer) for layer in reversed(range(ends[-1]))]
    names = [_bucket_name(last_first[a:b]) for a, b in itertools.pairwise(ends)]
    return track._replace(what=names)


def widened(trace: Trace, world_size: int) -> Trace:
    """A recording as it would be on more ranks, each doing what rank 0 did.

    Right where all ranks do the same and talk in collectives of all of them: data parallelism.
    Raises ValueError for any other recording.
    """
    everyone = tuple(range(trace.world_size))
    for event in trace.of(0):
        if event.peer is not None or event.ranks != everyone:
            raise ValueError(
                f"event {event.n} of rank 0 is {event.op} among ranks {event.ranks}: only "
                f"collectives of all {trace.world_size} ranks without a root can be widened"
            )
    ranks = tuple(range(world_size))
    return Trace(
        world_size,
        [replace(event, rank=rank, ranks=ranks) for rank in ranks for event in trace.of(0)],
        compute=[
            replace(span, rank=rank) for rank in ranks for span in trace.compute if span.rank == 0
        ],
    )
