"""Ordinary single-process torch: a tiny GPT, its data, and the training loop that is the oracle."""

from course_lib.models.nasty import NASTY_MODELS
from course_lib.models.reference import History, train
from course_lib.models.sorting import batches, solved_share
from course_lib.models.tiny_gpt import TinyGPT, tiny_gpt

__all__ = [
    "NASTY_MODELS",
    "History",
    "TinyGPT",
    "batches",
    "solved_share",
    "tiny_gpt",
    "train",
]
