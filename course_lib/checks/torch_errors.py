"""What torch's errors come from, where its words leave one cause and do not name it."""

import re
from collections.abc import Iterable

_SIZES = re.compile(
    r"(\w+): invalid tensor size at index (\d+) \(expected \((.*?),?\), got \((.*?),?\)\)"
)
_PRODUCT = re.compile(r"shapes cannot be multiplied \(\d+x(\d+) and (\d+)x(\d+)\)")
_CAUSES = (
    (
        ("index out of range in self", "is out of bounds for dimension"),
        "a tensor is asked for an element beyond its end. If it is only this rank's part of a "
        "whole, an index into the whole counts from where the part begins, and some are another "
        "rank's: look up one that is here for these, and put zeros there afterwards",
    ),
    (
        ("cannot register a hook on a tensor that doesn't require gradient",),
        "a frozen parameter has no gradient, so it takes no hook: take those with requires_grad",
    ),
    (
        ("leaf Variable that requires grad is being used in an in-place operation",),
        "this changes a parameter itself, where autograd looks on. If its gradient is meant, as in "
        "a hook, that is parameter.grad; if not, do it under torch.no_grad(), or on "
        "parameter.detach()",
    ),
    (
        ("does not require grad and does not have a grad_fn",),
        "backward() begins at something that no parameter leads to: what cuts the graph before it, "
        "a detach(), a torch.no_grad(), a collective?",
    ),
    (
        ("but got <class 'NoneType'> instead",),
        "there is no tensor to send or to receive into, but None. If it is a .grad: only what "
        "requires a gradient before the module runs gets one, so call requires_grad_() on what has "
        "arrived",
    ),
    (
        ("attempting to assign a gradient with dtype",),
        "a gradient has the dtype of its tensor. A copy that is to take fp32 gradients has to be "
        "fp32 itself: p.detach().float()",
    ),
    (
        ("Trying to backward through the graph a second time",),
        "two backward passes went through the same part of a graph, and the first one freed it: "
        "cut the graph between them with detach()",
    ),
    (
        ("grad can be implicitly created only for scalar outputs",),
        "backward() without an argument begins at a single number; here it needs the gradient of "
        "its tensor: output.backward(gradient)",
    ),
    (
        ("has been modified by an inplace operation",),
        "a tensor that backward still needs was written to after the forward pass: write into a "
        "copy",
    ),
    (
        ("out of bounds for storage of size",),
        "the memory is too small for what is to lie in it: untyped_storage().resize_(size) takes "
        "bytes, not elements, so note untyped_storage().nbytes() before it is taken away",
    ),
    (
        (
            "A different number of tensors was saved during the original forward",
            "Recomputed values for the following tensors have different metadata",
        ),
        "in backward a segment ran something else than in the forward pass. A function that is "
        "made in a loop looks its names up when it runs: bind them, as nn.Sequential(*layers) or a "
        "default argument does",
    ),
    (
        ("should not be the same as the rank of the current process",),
        "a rank sends to itself, or receives from itself: what it has needs no message",
    ),
    (
        ("Split sizes doesn't match total dim 0 size",),
        "a list of sizes does not add up to the rows of its tensor. dist.all_to_all_single takes "
        "first the sizes of what comes (those of its output), then the sizes of what goes",
    ),
    (
        ("Invalid usage of tensors with different dtypes",),
        "what comes in has another dtype than what goes out: make the tensor for it with "
        "torch.empty_like(...) or tensor.new_empty(...), which keep the dtype",
    ),
    (
        ("does not match world size",),
        "dist.all_to_all takes one tensor for each rank, and here are fewer or more. chunk(n, dim) "
        "makes fewer where that dimension is shorter than n: is it the one that you mean?",
    ),
    (
        ("'NoneType' object has no attribute 'wait'",),
        "there is no handle to wait for: dist.send and dist.recv, and collectives without "
        "async_op=True, wait in the call and return none; nor does a function without return",
    ),
)


def cause_of(errors: Iterable[str]) -> str:
    """The cause of the first of these errors whose words are known; "" if none are."""
    for error in errors:
        if sizes := _SIZES.search(error):
            name, index, one, other = sizes.groups()
            return (
                f"in {name} what each rank gives or gets and its place in the list are of one "
                f"shape, and here they are ({one}) and, at place {index}, ({other}): are the parts "
                "equal, padded where they have to be, and as flat as the list's?"
            )
        if product := _PRODUCT.search(error):
            return _cause_of_a_product(*map(int, product.groups()))
        for words, cause in _CAUSES:
            if any(each in error for each in words):
                return cause
    return ""


def _cause_of_a_product(columns: int, rows: int, others: int) -> str:
    """Why there is no product of a matrix with so many columns and one of `rows` x `others`."""
    summed = f"the product adds up over the {columns} columns of the first matrix"
    kept = "torch keeps a weight as (outputs, inputs)"
    found = [
        (
            columns == others,
            f"{summed}, and the second, {rows} x {others}, stands the other way round: {kept}, so "
            "F.linear(x, weight), or x @ weight.T",
        ),
        (
            columns > rows > 0 and columns % rows == 0,
            f"{summed}, and the second has only {rows} rows: it was cut along the dimension that "
            f"is added up over. {kept}: weight.chunk(t) cuts the outputs, weight.chunk(t, 1) the "
            "inputs",
        ),
        (
            rows > columns > 0 and rows % columns == 0,
            f"{summed}, and the second has {rows} rows: the first is a part, so take the same part "
            f"of the second. {kept}: weight.chunk(t, 1) cuts the inputs",
        ),
    ]
    causes = [cause for applies, cause in found if applies]
    return causes[0] if len(causes) == 1 else ""
