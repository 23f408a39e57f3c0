"""Notebook 07: three axes at once, where they lie, and what a cluster makes of them."""

from .across_axes import (
    LOSS_EVERYWHERE,
    NORM_ON_A_MESH,
)
from .choosing import CHOOSE_MESH
from .nodes import BYTES_BY_LINK
from .places import (
    GROUPS_ALONG,
    PLACE_OF_RANK,
)
from .sizing import (
    BYTES_PER_DEVICE,
    TOKENS_TO_HIDE,
)

EXERCISES = (
    PLACE_OF_RANK,
    GROUPS_ALONG,
    BYTES_BY_LINK,
    LOSS_EVERYWHERE,
    NORM_ON_A_MESH,
    BYTES_PER_DEVICE,
    TOKENS_TO_HIDE,
    CHOOSE_MESH,
)
