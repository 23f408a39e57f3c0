"""What each operator of torch.distributed means: the one place that knows their names.

torch.distributed has many spellings of the same thing (`all_gather_into_tensor`, renamed
`all_gather_single` in 2.13; lists and flat tensors; functional collectives), which reach the
dispatcher as a few dozen operators. Here each becomes a `Call` under the learner's name for it.
Arguments are read by the names in the operator's schema, so that a new optional one changes
nothing.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup, ReduceOp, _resolve_process_group
from torch._ops import OpOverload

Tensors = dict[str, list[torch.Tensor]]


@dataclass(slots=True)
class Call:
    """One communication about to be issued.

    nbytes, shapes, dtype: of "the tensor", as in `CommEvent`.
    reads, writes: tensors by the name of the argument that the learner passed them as.
    lists: the writes that are lists with a tensor for each rank.
    peer: rank within the group.
    splits: bytes of each member's part where these are unequal.
    functional: the result is a tensor to wait for, not a Work.
    blocking: whoever called it waits at once.
    """

    op: str
    group: ProcessGroup
    nbytes: int = 0
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    reads: Tensors = field(default_factory=dict)
    writes: Tensors = field(default_factory=dict)
    lists: tuple[str, ...] = ()
    peer: int | None = None
    tag: int = 0
    reduce_op: str | None = None
    splits: tuple[int, ...] | None = None
    functional: bool = False
    blocking: bool = False


def parser(op: OpOverload) -> Callable[[tuple, dict], Call | list[Call]]:
    """What makes a `Call` (of a batch, several) of the arguments of `op`, one of `OPERATORS`."""
    make = OPERATORS[op._schema.name]
    names = [argument.name for argument in op._schema.arguments]

    def parse(args: tuple, kwargs: dict) -> Call | list[Call]:
        return make(dict(zip(names, args, strict=False)) | kwargs)

    return parse


def nbytes(tensor: torch.Tensor) -> int:
    """Bytes of the elements (`Tensor.nbytes` refuses sparse tensors)."""
    return tensor.numel() * tensor.element_size()


def _call(op: str, a: dict, payload: list[torch.Tensor], **more: Any) -> Call:
    return Call(
        op,
        _group(a),
        sum([nbytes(tensor) for tensor in payload]),
        tuple([tuple(tensor.shape) for tensor in payload]),
        _name(payload[0].dtype) if payload else "",
        reduce_op=_reduction(a),
        blocking=not a.get("async_op", True),
        **more,
    )


@functools.cache
def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---------------------------------------------------------------------------------------------
# c10d: the plain calls. They return a Work.


def _send(a: dict) -> Call:
    tensors = a["tensors"]
    return _call("send", a, tensors, reads={"tensor": tensors}, peer=a["dst"], tag=a["tag"])


def _recv(a: dict) -> Call:
    tensors = a["tensors"]
    return _call("recv", a, tensors, writes={"tensor": tensors}, peer=a.get("src"), tag=a["tag"])


def _broadcast(a: dict) -> Call:
    tensors, root = a["tensors"], a["root_rank"]
    side = "reads" if _group(a).rank() == root else "writes"
    return _call("broadcast", a, tensors, peer=root, **{side: {"tensor": tensors}})


def _all_reduce(a: dict) -> Call:
    tensors = {"tensor": a["tensors"]}
    return _call("all_reduce", a, a["tensors"], reads=tensors, writes=tensors)


def _reduce(a: dict) -> Call:
    # Gloo leaves partial sums in the tensors of the other ranks as well.
    tensors = {"tensor": a["tensors"]}
    return _call("reduce", a, a["tensors"], reads=tensors, writes=tensors, peer=a["root_rank"])


def _all_gather(a: dict) -> Call:
    inputs, outputs = a["input_tensors"], a["output_tensors"][0]
    return _call(
        "all_gather",
        a,
        inputs,
        reads={"tensor": inputs},
        writes={"tensor_list": outputs},
        lists=("tensor_list",),
        splits=_unequal(outputs),
    )


def _all_gather_flat(a: dict) -> Call:
    inputs, outputs = [a["input_tensor"]], [a["output_tensor"]]
    return _call("all_gather", a, inputs, reads={"input": inputs}, writes={"output": outputs})


def _all_gather_many(a: dict) -> Call:
    inputs, outputs = a["input_list"], _flat(a["output_lists"])
    return _call("all_gather", a, inputs, reads={"input": inputs}, writes={"output": outputs})


def _all_gather_many_flat(a: dict) -> Call:
    inputs, outputs = a["inputs"], a["outputs"]
    return _call("all_gather", a, inputs, reads={"input": inputs}, writes={"output": outputs})


def _gather(a: dict) -> Call:
    inputs, outputs = a["input_tensors"], _flat(a["output_tensors"])
    return _call(
        "gather",
        a,
        inputs,
        reads={"tensor": inputs},
        writes={"gather_list": outputs},
        lists=("gather_list",),
        peer=a["root_rank"],
    )


def _gather_flat(a: dict) -> Call:
    inputs = [a["input_tensor"]]
    # Only the root has room for the result; the others pass an empty tensor.
    outputs = [a["output_tensor"]] if _group(a).rank() == a["root_rank"] else []
    return _call(
        "gather",
        a,
        inputs,
        reads={"tensor": inputs},
        writes={"gather_tensor": outputs},
        peer=a["root_rank"],
    )


def _scatter(a: dict) -> Call:
    inputs, outputs = _flat(a["input_tensors"]), a["output_tensors"]
    return _call(
        "scatter",
        a,
        outputs,
        reads={"scatter_list": inputs},
        writes={"tensor": outputs},
        peer=a["root_rank"],
    )


def _reduce_scatter(a: dict) -> Call:
    inputs, outputs = a["input_tensors"][0], a["output_tensors"]
    return _call(
        "reduce_scatter",
        a,
        outputs,
        reads={"input_list": inputs},
        writes={"output": outputs},
        splits=_unequal(inputs),
    )


def _reduce_scatter_flat(a: dict) -> Call:
    inputs, outputs = [a["input_tensor"]], [a["output_tensor"]]
    return _call("reduce_scatter", a, outputs, reads={"input": inputs}, writes={"output": outputs})


def _reduce_scatter_many_flat(a: dict) -> Call:
    inputs, outputs = a["inputs"], a["outputs"]
    return _call("reduce_scatter", a, outputs, reads={"input": inputs}, writes={"output": outputs})


def _all_to_all(a: dict) -> Call:
    inputs, outputs = a["input_tensors"], a["output_tensors"]
    return _call(
        "all_to_all",
        a,
        inputs,
        reads={"input_tensor_list": inputs},
        writes={"output_tensor_list": outputs},
        lists=("output_tensor_list",),
        splits=_unequal(inputs),
    )


def _all_to_all_flat(a: dict) -> Call:
    return _call(
        "all_to_all",
        a,
        [a["input"]],
        reads={"input": [a["input"]]},
        writes={"output": [a["output"]]},
        splits=_rows(a["input"], a["input_split_sizes"]),
    )


def _barrier(a: dict) -> Call:
    return _call("barrier", a, [])


# ---------------------------------------------------------------------------------------------
# _c10d_functional: the result is a new tensor, and wait_tensor waits for it.


def _functional(op: str) -> Callable[[dict], Call]:
    def make(a: dict) -> Call:
        inputs = a["inputs"] if "inputs" in a else [a["tensor" if "tensor" in a else "input"]]
        # These two work on a copy of their input, the others read it until they are waited for.
        reads = {} if op in ("all_reduce", "broadcast") else {"input": inputs}
        call = _call(op, a, inputs, reads=reads, functional=True)
        call.peer = a.get("src", a.get("dst"))
        call.tag = a.get("tag", 0)
        if op == "reduce_scatter":
            n = call.group.size()
            call.nbytes //= n
            call.shapes = tuple((rows // n, *rest) for rows, *rest in call.shapes)
        elif op == "all_to_all":
            call.splits = _rows(inputs[0], a["input_split_sizes"])
        elif op == "recv":
            call.reads, call.writes = {}, {"tensor": inputs}
        return call

    return make


def _batch(a: dict) -> list[Call]:
    """Sends and receives in one call, each with its own tensor to wait for."""
    columns = zip(a["op_list"], a["tensors"], a["peer_list"], a["tag_list"], strict=True)
    return [
        _functional(op.removeprefix("i"))(
            {"tensor": tensor, "dst": peer, "tag": tag, "group_name": a["group_name"]}
        )
        for op, tensor, peer, tag in columns
    ]


OPERATORS: dict[str, Callable[[dict], Call | list[Call]]] = {
    "c10d::send": _send,
    "c10d::recv_": _recv,
    "c10d::recv_any_source_": _recv,
    "c10d::broadcast_": _broadcast,
    "c10d::allreduce_": _all_reduce,
    "c10d::allreduce_coalesced_": _all_reduce,
    "c10d::reduce_": _reduce,
    "c10d::allgather_": _all_gather,
    "c10d::_allgather_base_": _all_gather_flat,
    "c10d::allgather_coalesced_": _all_gather_many,
    "c10d::allgather_into_tensor_coalesced_": _all_gather_many_flat,
    "c10d::gather_": _gather,
    "c10d::gather_into_tensor_": _gather_flat,  # since torch 2.14, and not on gloo
    "c10d::scatter_": _scatter,
    "c10d::reduce_scatter_": _reduce_scatter,
    "c10d::_reduce_scatter_base_": _reduce_scatter_flat,
    "c10d::reduce_scatter_tensor_coalesced_": _reduce_scatter_many_flat,
    "c10d::alltoall_": _all_to_all,
    "c10d::alltoall_base_": _all_to_all_flat,
    "c10d::barrier": _barrier,
    "c10d::monitored_barrier_": _barrier,
    "_c10d_functional::isend": _functional("send"),
    "_c10d_functional::irecv": _functional("recv"),
    "_c10d_functional::batch_p2p_ops": _batch,
    "_c10d_functional::broadcast": _functional("broadcast"),
    "_c10d_functional::broadcast_": _functional("broadcast"),
    "_c10d_functional::all_reduce": _functional("all_reduce"),
    "_c10d_functional::all_reduce_": _functional("all_reduce"),
    "_c10d_functional::all_reduce_coalesced": _functional("all_reduce"),
    "_c10d_functional::all_reduce_coalesced_": _functional("all_reduce"),
    "_c10d_functional::all_gather_into_tensor": _functional("all_gather"),
    "_c10d_functional::all_gather_into_tensor_out": _functional("all_gather"),
    "_c10d_functional::all_gather_into_tensor_coalesced": _functional("all_gather"),
    "_c10d_functional::reduce_scatter_tensor": _functional("reduce_scatter"),
    "_c10d_functional::reduce_scatter_tensor_out": _functional("reduce_scatter"),
    "_c10d_functional::reduce_scatter_tensor_coalesced": _functional("reduce_scatter"),
    "_c10d_functional::all_to_all_single": _functional("all_to_all"),
}


# ---------------------------------------------------------------------------------------------
# arguments


def _group(a: dict) -> ProcessGroup:
    group = a["process_group"] if "process_group" in a else a["group_name"]
    if isinstance(group, str):
        return _resolve_process_group(a["group_name"])
    return group if isinstance(group, ProcessGroup) else ProcessGroup.unbox(group)


_REDUCTIONS = {op.value: name.lower() for name, op in ReduceOp.RedOpType.__members__.items()}


def _reduction(a: dict) -> str | None:
    op = a.get("reduce_op")
    if op is None or isinstance(op, str):
        return op
    return _REDUCTIONS.get(op.op())


def _flat(lists: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    return [tensor for row in lists for tensor in row]


def _unequal(parts: list[torch.Tensor]) -> tuple[int, ...] | None:
    sizes = tuple(map(nbytes, parts))
    return sizes if len(set(sizes)) > 1 else None


def _rows(tensor: torch.Tensor, split_sizes: list[int]) -> tuple[int, ...] | None:
    if len(set(split_sizes)) < 2:
        return None
    row = nbytes(tensor) // max(1, sum(split_sizes))
    return tuple(rows * row for rows in split_sizes)
