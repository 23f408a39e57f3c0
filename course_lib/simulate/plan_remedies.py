"""Where nothing fits: what would make the request possible."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from course_lib.techniques.mesh import Mesh

from .hardware import DEVICES
from .mesh_search import OVER, Search
from .plans import GB, Refused

_MORE_NODES = tuple(2**k for k in range(1, 13))


def remedies(
    search: Search, refused: Sequence[Refused], allow: Callable[[Mesh], bool]
) -> Iterator[str]:
    """One sentence each."""
    cluster, batch = search.cluster, search.batch
    full = [refusal for refusal in refused if refusal.need]
    if full:
        yield (
            f"Least memory: {full[0].mesh}, {full[0].need / GB:.1f} GB on a device of"
            f" {cluster.device.memory / GB:.0f}."
        )
        larger = [
            device
            for device in sorted(DEVICES.values(), key=lambda device: device.memory)
            if device.memory >= full[0].need and device.memory > cluster.device.memory
        ]
        if larger:
            yield f"{larger[0].name} would do."
    if search.contexts == (1,) and _fits(replace(search.least(cluster), contexts=None), allow):
        yield "Sequences cut over ranks would do: contexts=None tries all sizes of that axis."
    for factor in _MORE_NODES:
        more = search.least(cluster.with_nodes(cluster.nodes * factor))
        if _fits(more, allow):
            yield f"{more.cluster.nodes} nodes, {more.cluster.size} devices, would do."
            break
    if max(search.zero) < 3 or search.recompute[-1] != "full":
        yield "Allow ZeRO 3 and full recomputation, which take the least memory."
    replicas = [r.mesh.data for r in refused if f"sequences {OVER}" in r.why]
    if replicas:
        fewest = min(replicas)
        near = max(1, round(batch / fewest)) * fewest
        yield f"A batch of {near} sequences divides over {fewest} replicas, {batch} does not."


def _fits(search: Search, allow: Callable[[Mesh], bool]) -> bool:
    found = (search.on(mesh) for mesh in search.meshes() if allow(mesh))
    return any(not isinstance(plans, Refused) for plans in found)
