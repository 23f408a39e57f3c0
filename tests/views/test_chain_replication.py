"""The story of a push: every message and deed drawn, and added once on whoever lives."""

import pytest

from course_lib.views.chain_replication import STORIES, Deed, Message, chain_replication
from tests.views.reading import boxes, words


def test_all_that_happens_is_drawn_and_said():
    view = chain_replication()
    for story in STORIES:
        assert story.name in words(view)
        assert f"{story.name}:" in view.text
        for each in story.happens:
            assert each.what in words(view)
    assert len(boxes(view)) == sum(isinstance(e, Deed) for s in STORIES for e in s.happens)
    assert words(view).count("dies") == view.text.count("server: dies") == 2


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_the_replica_adds_a_push_once_and_a_dead_server_does_nothing(story):
    added = [e for e in story.happens if isinstance(e, Deed) and e.what == "adds 7"]
    assert [deed.who for deed in added].count("replica") == 1
    end = story.dies if story.dies is not None else max(e.begin for e in story.happens) + 1
    by_server = [
        each.begin
        for each in story.happens
        if (each.source if isinstance(each, Message) else each.who) == "server"
    ]
    assert all(begin < end for begin in by_server)
    last = max((e for e in story.happens if isinstance(e, Message)), key=lambda e: e.begin)
    assert (last.target, last.what) == ("worker", "ack 7")
    waits = [e for e in story.happens if isinstance(e, Deed) and e.what == "waits"]
    pushes = [e for e in story.happens if isinstance(e, Message) and "push" in e.what]
    assert [(wait.begin, wait.end) for wait in waits][-1] == (pushes[-1].begin, last.begin + 1)
    assert len(waits) == len(pushes) == (1 if story.dies is None else 2)
