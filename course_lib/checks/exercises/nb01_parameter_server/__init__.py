"""Notebook 01: parameter servers, and what asynchronous training costs."""

from .asynchronous import ASYNCHRONOUS_SERVER
from .bounding import RELEASED
from .filtering import SIGNIFICANT_CHANGES
from .link_bytes import BYTES_SENT
from .placing import PLACE_BY_BYTES, RING_OWNERS
from .push_pull import PUSH_AND_PULL
from .training import TRAIN_SYNCHRONOUSLY

EXERCISES = (
    PUSH_AND_PULL,
    TRAIN_SYNCHRONOUSLY,
    BYTES_SENT,
    PLACE_BY_BYTES,
    RING_OWNERS,
    ASYNCHRONOUS_SERVER,
    RELEASED,
    SIGNIFICANT_CHANGES,
)
