"""No communication of this version of torch goes by unseen."""

import torch
import torch.distributed._functional_collectives  # registers its operators

from course_lib.observe.calls import OPERATORS

# Several messages in one operator, for torch's own use.
NOT_TAPPED = {"_c10d_functional::batch_p2p_ops"}


def operators_of(namespace: str, argument: str) -> set[str]:
    """Names of the operators of a namespace that have an argument of this name."""
    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith(f"{namespace}::"):
            base, _, overload = name.partition(".")
            packet = getattr(getattr(torch.ops, namespace), base.split("::")[1])
            schema = getattr(packet, overload or "default")._schema
            if argument in {a.name for a in schema.arguments}:
                found.add(base)
    return found


def test_every_operator_with_a_process_group_is_known():
    plain = operators_of("c10d", "process_group")
    functional = operators_of("_c10d_functional", "group_name")
    assert "c10d::send" in plain
    assert "_c10d_functional::all_reduce" in functional
    assert (plain | functional) - NOT_TAPPED - set(OPERATORS) == set()
