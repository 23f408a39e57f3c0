"""Ordinary single-process torch: a tiny GPT, its data, and the training loop that is the oracle."""

from .nasty import NASTY_MODELS
from .reference import History, train
from .sorting_task import batches, solved_share
from .tiny_gpt import TinyGPT, tiny_gpt

__all__ = [
    "NASTY_MODELS",
    "History",
    "TinyGPT",
    "batches",
    "solved_share",
    "tiny_gpt",
    "train",
]
