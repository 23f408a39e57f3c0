"""Ordinary single-process torch: tiny GPTs, their data, the training loop that is the oracle.

To read in this order:

    tiny_gpt        a GPT that still learns something; mixture: the same with experts
    sorting_task    what it learns
    nasty           small models with what breaks naive implementations
    reference       training on one device
"""

from .mixture import TinyMixtureGPT, tiny_mixture_gpt
from .nasty import NASTY_MODELS
from .reference import History, train
from .sorting_task import batches, solved_share
from .tiny_gpt import TinyGPT, tiny_gpt

__all__ = [
    "NASTY_MODELS",
    "History",
    "TinyGPT",
    "TinyMixtureGPT",
    "batches",
    "solved_share",
    "tiny_gpt",
    "tiny_mixture_gpt",
    "train",
]
