"""A learner's own run under sliders is the replay of that run."""

from dataclasses import replace
from types import SimpleNamespace

from course_lib.observe import CommEvent, Trace
from course_lib.simulate import dgx_a100, replay
from course_lib.views.replay_explorer import replay_explorer, replayed
from tests.views.reading import Moved, boxes, keys


def all_reduces(world_size: int) -> Trace:
    ranks = tuple(range(world_size))
    return Trace(
        world_size,
        [
            CommEvent(
                rank=rank, n=0, op="all_reduce", group="0", ranks=ranks, peer=None, tag=0,
                nbytes=10**8, shapes=((25 * 10**6,),), dtype="float32", reduce_op="sum",
                blocking=True, native=False, issued=0.0, waited=0.0, done=1.0,
            )
            for rank in ranks
        ],
    )  # fmt: skip


TRACE = all_reduces(4)
BROADCASTS = Trace(4, [replace(event, op="broadcast", reduce_op=None) for event in TRACE.events])


def milliseconds(view) -> float:
    number, unit = view.text.split(": ")[1].split(",")[0].split()
    return float(number) * {"s": 1000, "ms": 1, "µs": 0.001}[unit]


def test_the_first_picture_is_the_replay_on_a_node_of_a100s():
    expected = replay(TRACE, dgx_a100).makespan
    view = replayed(TRACE, "NVLink 3")
    assert abs(milliseconds(view) - 1000 * expected) < 0.01
    assert view.text.startswith("NVLink 3, one node: ")
    assert replay_explorer(TRACE).text == replayed(TRACE, "10 GbE").text


def test_fewer_devices_a_node_take_the_network():
    inside = replayed(TRACE, "NVLink 3")
    across = replayed(TRACE, "NVLink 3", between="10 GbE", devices_per_node=2)
    assert "2 nodes on 10 GbE" in across.text
    assert milliseconds(across) > 100 * milliseconds(inside)
    # A hierarchical all-reduce sends half as much over the slow wire
    clever = replayed(TRACE, "NVLink 3", "10 GbE", 2, all_reduce="hierarchical")
    assert milliseconds(clever) < 0.8 * milliseconds(across)


def test_the_widget_offers_what_works_for_this_many_ranks():
    def offered(world_size):
        return Moved(replay_explorer(all_reduces(world_size))).offered("all_reduce")

    assert "recursive_doubling" in offered(4)
    assert "recursive_doubling" not in offered(3)
    assert {"ring", "tree", "hierarchical"} < {*offered(3)}


def test_the_widget_offers_nothing_that_would_change_nothing():
    def offered(trace, compute=None):
        return list(Moved(replay_explorer(trace, compute)).widgets)

    everything = ["inside", "between", "devices_per_node", "speed", "all_reduce"]
    assert offered(TRACE) == everything
    assert offered(BROADCASTS) == everything[:4]
    assert offered(TRACE, compute=[]) == everything[:3] + everything[4:]


def test_a_share_of_the_time_is_said_only_of_ranks_that_compute():
    alone = replayed(TRACE, compute=[]).text
    assert ", messages only" in alone
    assert "idle" not in alone
    assert "as fast" not in alone
    compute = [SimpleNamespace(rank=rank, name="sort", start=0.0, seconds=1.0) for rank in range(4)]
    both = replayed(TRACE, speed=10, compute=compute).text
    assert "devices 10 times as fast as here: " in both
    assert ", ranks compute " in both


def test_what_does_not_fit_together_is_said():
    move = Moved(replay_explorer(all_reduces(3)))
    said = move(devices_per_node=2, all_reduce="hierarchical")  # nodes of two ranks and of one
    assert not boxes(said)
    assert len(said.text) > 20


def test_a_link_that_nothing_goes_over_cannot_be_chosen():
    move = Moved(replay_explorer(TRACE))
    assert move.widgets["between"].disabled
    assert not move.widgets["inside"].disabled
    move(devices_per_node=1)
    assert not move.widgets["between"].disabled
    assert move.widgets["inside"].disabled


def test_what_goes_from_node_to_node_has_a_colour_of_its_own():
    events = [
        CommEvent(
            rank=rank, n=0, op=op, group="0", ranks=(0, 1, 2, 3), peer=peer, tag=0, nbytes=10**6,
            shapes=((10**6,),), dtype="uint8", reduce_op=None, blocking=True, native=False,
            issued=0.0, waited=0.0, done=1.0,
        )
        for rank, op, peer in ((0, "send", 1), (1, "recv", 0), (3, "send", 2), (2, "recv", 3))
    ]  # fmt: skip
    trace = Trace(4, events)
    assert keys(replayed(trace, devices_per_node=2, compute=[])) == ["sent", "received"]
    view = replayed(trace, devices_per_node=1, compute=[])
    assert keys(view) == ["sent, between nodes", "received, between nodes"]
    assert len({box.fill for box in boxes(view)}) == 2
