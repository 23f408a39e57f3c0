"""Every byte is in a box, no box holds more than a device, and what does not fit is refused."""

import itertools

import pytest

from course_lib.views.devices_needed import MOST, devices_needed
from tests.views.reading import boxes, keys, words

STATES = {"parameters": 350e9, "gradients": 350e9, "optimizer": 2100e9}


def test_bytes_are_laid_over_as_many_devices_as_they_need():
    view = devices_needed({"weights": {"parameters": 700e9}, "training": STATES}, 80e9)
    assert "weights: 700 GB, 9 devices" in view.text
    assert "training: 2.8 TB, 35 devices" in view.text
    found = boxes(view)
    full = max(box.wide for box in found)
    wide = {
        key: sum(box.wide for box in found if box.key == key) / full for key in (*STATES, "free")
    }
    assert wide["optimizer"] == pytest.approx(2100 / 80, abs=0.01)
    assert wide["gradients"] == pytest.approx(350 / 80, abs=0.01)
    assert wide["parameters"] == pytest.approx((700 + 350) / 80, abs=0.01)
    assert wide["free"] == pytest.approx(0.25, abs=0.01)
    assert keys(view) == list(STATES)
    assert "weights: 700 GB, 9 devices" in words(view)


def test_machines_stand_apart():
    rows = devices_needed({"one": {"other": 4.0}}, 1, machine=2)
    left = [box.x for box in boxes(rows, "other")]
    gaps = [b - a for a, b in itertools.pairwise(left)]
    assert gaps[0] == gaps[2] < gaps[1]


@pytest.mark.parametrize(
    ("bars", "device", "said"),
    [
        ({}, 1, "nothing"),
        ({"a": {"food": 1}}, 1, "food"),
        ({"a": {"other": MOST + 1}}, 1, f"at most {MOST} devices of 1 B, not {MOST + 1} B"),
        ({"a": {"other": 0}}, 1, "more than 0"),
        ({"a": {"other": 1}}, 0, "device_bytes = 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(bars, device, said):
    with pytest.raises(ValueError, match=said):
        devices_needed(bars, device)
