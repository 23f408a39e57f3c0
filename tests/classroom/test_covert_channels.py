"""Ranks that tell each other a number without a message: it does not reach the other one."""

import pytest

from tests.classroom.attacked import CANCELLED, require_nothing_gained, verdicts_on
from tests.classroom.covert_channels import CHANNELS


@pytest.fixture(scope="module")
def verdicts():
    return verdicts_on({name: code + CANCELLED for name, code in CHANNELS.items()})


@pytest.mark.parametrize("name", CHANNELS)
def test_nothing_is_gained_and_a_reason_is_given(verdicts, name):
    require_nothing_gained(verdicts[name])


def test_the_honest_answer_passes_after_them(verdicts):
    assert verdicts["honest"].passed, str(verdicts["honest"])
