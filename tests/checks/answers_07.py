"""Right answers to notebook 07, written independently of the solutions and of the techniques."""

import math

import torch
import torch.distributed as dist


def place_of_rank(rank, sizes):
    axes, found = list(sizes), {}
    for number, axis in enumerate(axes):
        after = math.prod(sizes[later] for later in axes[number + 1 :])
        found[axis] = rank // after % sizes[axis]
    return found


def groups_along(axis, sizes):
    """A tensor of ranks in the shape of the mesh, with the axis moved to the end."""
    mesh = torch.arange(math.prod(sizes.values())).view(*sizes.values())
    return mesh.movedim(list(sizes).index(axis), -1).reshape(-1, sizes[axis]).tolist()


def bytes_by_link(matrix, ranks_per_node):
    table = torch.tensor(matrix)
    nodes = torch.arange(len(matrix)) // ranks_per_node
    same = nodes[:, None] == nodes
    return [table[same].sum(), table[~same].sum()]


def loss_everywhere(loss, groups):
    """By broadcast along the pipeline, from its last rank."""
    value = torch.zeros(1, dtype=torch.float64) if loss is None else loss.reshape(1).clone()
    last = dist.get_process_group_ranks(groups["pipeline"])[-1]
    dist.broadcast(value, src=last, group=groups["pipeline"])
    gathered = [torch.empty_like(value) for _ in range(dist.get_world_size(groups["data"]))]
    dist.all_gather(gathered, value, group=groups["data"])
    return torch.cat(gathered).mean().item()


def norm_on_a_mesh(gradients, split, groups):
    """In one sum over tensor and pipeline, with copies weighted by how many there are."""
    copies = dist.get_world_size(groups["tensor"])
    total = torch.zeros((), dtype=torch.float64)
    for gradient, part in zip(gradients, split, strict=True):
        total += gradient.pow(2).sum() / (1 if part else copies)
    for axis in ("tensor", "pipeline"):
        dist.all_reduce(total, group=groups[axis])
    return float(total) ** 0.5


def bytes_per_device(parameters, sizes, zero):
    shared = [12, 2, 2][:zero]
    whole = [12, 2, 2][zero:]
    own = parameters / sizes["tensor"] / sizes["pipeline"]
    return own * (sum(shared) / sizes["data"] + sum(whole))


def tokens_to_hide(volume, devices, flops, bandwidth):
    return flops * volume * (1 - 1 / devices) / (3 * bandwidth)


def choose_mesh(model, cluster):
    devices = cluster["devices"]
    for replica in range(1, devices + 1):
        if devices % replica:
            continue
        for tensor in range(min(replica, cluster["per_node"]), 0, -1):
            pipeline = replica // tensor
            if replica % tensor or model["heads"] % tensor or model["layers"] % pipeline:
                continue
            need = model["parameters"] / replica * (4 + 12 * replica / devices)
            if need <= 0.6 * cluster["memory"]:
                return {"tensor": tensor, "pipeline": pipeline, "data": devices // replica}
    return None


ANSWERS = {
    answer.__name__: [answer]
    for answer in (
        place_of_rank,
        groups_along,
        bytes_by_link,
        loss_everywhere,
        norm_on_a_mesh,
        bytes_per_device,
        tokens_to_hide,
        choose_mesh,
    )
}
