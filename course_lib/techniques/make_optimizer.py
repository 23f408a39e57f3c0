"""How a technique is told which optimizer to use: by a function that builds it.

    make_optimizer = lambda groups: torch.optim.AdamW(groups, lr=1e-3)

The technique calls it with what the optimizer really is to step: pieces, masters, a stage's layers.
"""

from collections.abc import Callable
from typing import Any

import torch

MakeOptimizer = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]
"""Gets parameter groups as torch's optimizers take them, and returns the optimizer."""
