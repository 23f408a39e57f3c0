"""A step with overlap, by the rule of its own; and recordings widened to more ranks."""

import pytest
import torch
import torch.distributed as dist

from course_lib.observe import Trace
from course_lib.observe.timeline import COMMUNICATION
from course_lib.ranks import collect
from course_lib.simulate import LINKS, costs, dgx_a100, replay
from course_lib.simulate.convnets import inception_v3, layers, resnet101, vgg16
from course_lib.simulate.data_parallel import (
    Layer,
    bucket_layers,
    data_parallel_step,
    on_machines,
    widened,
)

THREE = [Layer("1", 1, 2, 30), Layer("2", 1, 2, 20), Layer("3", 1, 2, 10)]


def test_buckets_are_filled_from_the_last_layer() -> None:
    assert bucket_layers(THREE, 1) == [[2], [1], [0]]
    assert bucket_layers(THREE, 30) == [[2, 1], [0]]
    assert bucket_layers(THREE, 100) == [[2, 1, 0]]
    assert bucket_layers(THREE, 100, first_bucket_bytes=15) == [[2], [1, 0]]
    assert bucket_layers([], 10) == []
    with pytest.raises(ValueError, match="bucket_bytes = 0 must be more than 0"):
        bucket_layers(THREE, 0)


def test_a_bucket_is_named_by_what_it_carries() -> None:
    for size, names in ((1, ["3", "2", "1"]), (30, ["3–2", "1"]), (100, ["3–1"])):
        step = data_parallel_step(THREE, bucket_layers(THREE, size), lambda nbytes: nbytes)
        sent = [span.what for span in step.spans if span.track == COMMUNICATION]
        assert sent == [f"bucket {name}" for name in names]


@pytest.mark.parametrize("speed", [0.5, 5, 10, 1000])
@pytest.mark.parametrize("size", [1, 30, 100])
def test_a_bucket_waits_for_its_layers_and_for_the_network(size: float, speed: float) -> None:
    buckets = bucket_layers(THREE, size)
    step = data_parallel_step(THREE, buckets, lambda nbytes: 0.25 + nbytes / speed)
    ready = {2: 3 + 2, 1: 3 + 4, 0: 3 + 6}
    free = 0.0
    for bucket in buckets:
        free = max(free, max(ready[i] for i in bucket))
        free += 0.25 + sum(THREE[i].nbytes for i in bucket) / speed
    assert step.makespan == pytest.approx(free)
    assert step.busy == (9,)


def test_without_buckets_nothing_is_sent() -> None:
    step = data_parallel_step(THREE, [], lambda nbytes: 1e9)
    assert step.makespan == 9
    assert not [span for span in step.spans if span.track == COMMUNICATION]


def test_buckets_that_leave_a_layer_out_are_refused() -> None:
    with pytest.raises(ValueError, match=r"buckets hold layers \[0, 2\], and there are 3 layers"):
        data_parallel_step(THREE, [[2], [0]], lambda nbytes: 1)


# -------------------------------------------------------------------------------------------------


def reduce_twice() -> None:
    first = dist.all_reduce(torch.zeros(1000), async_op=True)
    second = dist.all_reduce(torch.zeros(3000), async_op=True)
    first.wait()
    second.wait()


def test_a_recording_of_two_ranks_is_replayed_on_many() -> None:
    trace = collect(reduce_twice, 2).trace
    link = dgx_a100.inside
    for n in (2, 8, 64):
        wide = widened(trace, n)
        assert wide.world_size == n
        assert not wide.match().unmatched_sends
        cluster = dgx_a100.with_nodes(max(1, n // 8)).with_links(between=link)
        seconds = replay(wide, cluster, compute=[]).makespan
        each = [2 * (n - 1) * link.alpha + 2 * (n - 1) / n * b * link.beta for b in (4000, 12000)]
        assert seconds == pytest.approx(sum(each))


def test_a_recorded_step_is_that_of_as_many_machines_and_names_what_its_buckets_carry() -> None:
    """`reduce_twice` carries layers 3 and 2 to 0 of a model whose layers have 4000 bytes each."""
    passes = [(f"{way} {layer}", -1.0) for way in "FB" for layer in range(4)]
    trace = collect(reduce_twice, 2).trace
    step = on_machines(trace, passes, {"F": 1, "B": 2}, 4000, 16, "10 GbE")
    assert step.world_size == 1
    assert step.busy == (12,)
    sent = [span for span in step.spans if span.track == COMMUNICATION]
    assert [span.what for span in sent] == ["bucket 3", "bucket 2–0"]
    link = LINKS["10 GbE"]
    for span, nbytes in zip(sent, (4000, 12000), strict=True):
        seconds = costs.ring_all_reduce(16, nbytes, link.alpha, link.beta)
        assert span.end - span.start == pytest.approx(seconds)


def test_what_is_not_the_same_on_all_ranks_cannot_be_widened() -> None:
    def broadcast() -> None:
        dist.broadcast(torch.zeros(1), 0)

    with pytest.raises(ValueError, match=r"event 0 of rank 0 is broadcast among ranks \(0, 1\)"):
        widened(collect(broadcast, 2).trace, 4)
    assert widened(Trace(1), 3).events == []


# -------------------------------------------------------------------------------------------------


def test_parameters_are_those_of_the_papers_implementations() -> None:
    assert sum(part.parameters for part in vgg16()) == 138_357_544
    assert sum(part.parameters for part in resnet101()) == 44_549_160
    assert sum(part.parameters for part in inception_v3()) == pytest.approx(23_834_568, rel=1e-6)


def test_operations_are_those_of_the_papers() -> None:
    """VGG-16: 15.5 billion. ResNet-101: 7.8, as the stride is in the second convolution."""
    assert sum(part.operations for part in vgg16()) == pytest.approx(15.5e9, rel=0.01)
    assert sum(part.operations for part in resnet101()) == pytest.approx(7.8e9, rel=0.01)


def test_layers_share_out_the_time() -> None:
    made = layers(vgg16(), 3.0)
    assert sum(layer.forward for layer in made) == pytest.approx(1.0)
    assert sum(layer.backward for layer in made) == pytest.approx(2.0)
    assert sum(layer.nbytes for layer in made) == 4 * 138_357_544
