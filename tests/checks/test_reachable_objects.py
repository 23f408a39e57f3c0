"""What an answer reaches, and where."""

import functools

import torch

from course_lib.checks.reachable_objects import reached_from

HELD = {"scratch": torch.tensor(1.0)}


@functools.lru_cache(maxsize=4)
def made_once(value):
    return torch.tensor(value)


class Room:
    shared = torch.tensor(2.0)

    def __init__(self):
        self.own = torch.tensor(3.0)

    def sized(self):
        return self.own


ROOM = Room()


def of_globals():
    return HELD["scratch"] + made_once(4.0) + ROOM.sized()


def of_defaults(room=torch.tensor(5.0), *, more=(torch.tensor(6.0),)):  # noqa: B008
    return room, more


def around():
    kept = torch.tensor(7.0)

    def inner():
        return kept

    inner.note = torch.tensor(8.0)
    return inner


def uses_torch_only():
    return torch.nn.Linear, torch.ones(9)


def tensors(answer):
    found = reached_from(answer)
    return {(at, each.item()) for at, each in found if isinstance(each, torch.Tensor)}


def test_tensors_in_globals_caches_and_objects():
    of_globals()
    assert tensors(of_globals) == {
        ("HELD['scratch']", 1.0),
        ("Room.shared", 2.0),
        ("ROOM.own", 3.0),
        ("made_once", 4.0),
    }


def test_tensors_in_defaults_closures_and_attributes():
    assert tensors(of_defaults) == {("room", 5.0), ("more[0]", 6.0)}
    assert tensors(around()) == {("kept", 7.0), ("inner.note", 8.0)}
    partial = functools.partial(of_defaults, [torch.tensor(9.0)], more=())
    assert ("[0][0]", 9.0) in tensors(partial)


def test_nothing_behind_what_is_not_the_learners():
    assert tensors(uses_torch_only) == set()
    assert list(reached_from(len)) == [("", len)]
