"""The two halves of a backward pass: first what the stage before waits for, the rest whenever.

    F:  y = W x         I:  dx = W^T dy         W:  dW = dy x^T

`torch.autograd.backward` does I and W together. Here I walks the graph from the output to the
input and leaves aside everything that only leads to weights. Where such a side path branches off,
it notes the gradient that came by; W starts from these notes, and repeats nothing of I.

    output --- addmm ------ relu ------ addmm --- input        the main path, run by I
                 |                        |
                W2                       W1                    side paths, run by W

Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.
"""

from collections import defaultdict
from collections.abc import Iterator

import torch
from torch.autograd.graph import GradientEdge, Node


class SplitBackward:
    """A backward pass from `output` to the leaf `x` and the weights on the way, in two parts."""

    def __init__(self, output: GradientEdge, x: torch.Tensor) -> None:
        self.output, self.x = output, x
        self._gradient: torch.Tensor | None = None  # of the output, kept for W where I has no work
        self._branches: dict[Node, list[torch.Tensor]] = {}  # where side paths leave: their weights
        self._passed: dict[Node, tuple] = {}  # the gradients that came by there

    def input_pass(self, gradient: torch.Tensor | None) -> None:
        """I: puts the gradient of `x` into `x.grad`."""
        if not self.x.requires_grad:  # nobody waits: all the work is left to W
            self._gradient = gradient
            return
        self._branches, used_again = _branches(self.output.node, self.x)
        hooks = [node.register_prehook(self._note(node)) for node in self._branches]
        # A weight that is used several times would need the main path between them again.
        wanted = [self.x, *used_again]
        torch.autograd.backward(self.output, gradient, inputs=wanted, retain_graph=True)
        for hook in hooks:
            hook.remove()

    def weight_pass(self) -> None:
        """W: adds the gradients of the weights to their `.grad`."""
        if self._gradient is not None:
            torch.autograd.backward(self.output, self._gradient)
        for node, weights in self._branches.items():
            passed = self._passed.pop(node, ())
            came = [(GradientEdge(node, i), g) for i, g in enumerate(passed) if g is not None]
            if came:
                edges, gradients = zip(*came, strict=True)
                torch.autograd.backward(edges, gradients, inputs=weights)

    def _note(self, node: Node):
        def note(gradients: tuple) -> None:
            self._passed[node] = gradients

        return note


def _branches(
    root: Node, x: torch.Tensor
) -> tuple[dict[Node, list[torch.Tensor]], list[torch.Tensor]]:
    """Nodes of the main path with the weights of their side paths, and weights met twice."""
    children_first = list(_children_first(root))
    main: set[Node] = set()
    for node in children_first:
        children = [child for child, _ in node.next_functions if child]
        if getattr(node, "variable", None) is x or any(child in main for child in children):
            main.add(node)
    leaves: dict[Node, set[torch.Tensor]] = {}  # of a node beside the main path: what it leads to
    owners: dict[torch.Tensor, list[Node]] = defaultdict(list)
    for node in children_first:
        found: set[torch.Tensor] = set()
        for child, _ in node.next_functions:
            if child is not None:
                found |= leaves.get(child, set())
        if node in main:
            for leaf in found:
                owners[leaf].append(node)
        else:
            own = getattr(node, "variable", None)
            leaves[node] = found if own is None else {own}
    branches: dict[Node, list[torch.Tensor]] = defaultdict(list)
    for leaf, nodes in owners.items():
        if len(nodes) == 1:
            branches[nodes[0]].append(leaf)
    return dict(branches), [leaf for leaf, nodes in owners.items() if len(nodes) > 1]


def _children_first(root: Node) -> Iterator[Node]:
    """Every node of the graph once, after all that its gradients go to."""
    seen: set[Node] = set()
    stack = [(root, False)]
    while stack:
        node, children_done = stack.pop()
        if children_done:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(child, False) for child, _ in node.next_functions if child]
