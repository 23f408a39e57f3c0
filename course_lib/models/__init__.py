"""Ordinary single-process torch: tiny GPTs, their data, the training loop that is the oracle.

To read in this order:

    tiny_gpt        a GPT that still learns something; mixture_of_experts is the same with experts
    sorting_task    what it learns
    edge_cases      small models with what breaks naive implementations
    reference       training on one device
    sleeping_stage  a part of a model that takes time without computing
    balancing_experiment
                    a mixture whose steps last as long as their busiest experts
"""

from .edge_cases import NASTY_MODELS
from .mixture_of_experts import TinyMixtureGPT, tiny_mixture_gpt
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
