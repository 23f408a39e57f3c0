"""Wrong answers to notebook 07: what people write, and what the check must say to each."""

import itertools
import math

import torch
import torch.distributed as dist

from course_lib.checks.zoo import wrong

# ---------------------------------------------------------------------------------------------
# Right answers that the wrong ones are made of
# ---------------------------------------------------------------------------------------------


def place(rank, sizes):
    found = {}
    for axis in reversed(sizes):
        rank, found[axis] = divmod(rank, sizes[axis])
    return found


def grouped(sizes, key):
    found = {}
    for rank in range(math.prod(sizes.values())):
        found.setdefault(key(place(rank, sizes)), []).append(rank)
    return list(found.values())


def without(axis):
    return lambda places: tuple(p for a, p in sorted(places.items()) if a != axis)


def sum_over(value, group):
    total = torch.as_tensor(value, dtype=torch.float64).clone()
    dist.all_reduce(total, group=group)
    return total


def squares(tensors):
    return sum((t.square().sum() for t in tensors), torch.zeros((), dtype=torch.float64))


def parts_and_copies(gradients, split):
    parts = [g for g, s in zip(gradients, split, strict=True) if s]
    copies = [g for g, s in zip(gradients, split, strict=True) if not s]
    return squares(parts), squares(copies)


def states(own, data, zero):
    weights = 2 / (data if zero >= 3 else 1)
    gradients = 2 / (data if zero >= 2 else 1)
    return own * (weights + gradients + 12 / (data if zero >= 1 else 1))


def meshes(model, cluster, share=0.6, inside=True, divides=True):
    for t, p in itertools.product(range(1, cluster["per_node"] + 1), range(1, model["layers"] + 1)):
        if cluster["devices"] % (t * p) or (divides and model["heads"] % t):
            continue
        if divides and model["layers"] % p:
            continue
        d = cluster["devices"] // (t * p)
        if model["parameters"] / (t * p) * (4 + 12 / d) <= share * cluster["memory"]:
            yield {"pipeline": p, "data": d, "tensor": t}


def least(found):
    return min(found, key=lambda m: (m["tensor"] * m["pipeline"], -m["tensor"]))


# ---------------------------------------------------------------------------------------------
# place_of_rank
# ---------------------------------------------------------------------------------------------


@wrong("place_of_rank", says="this has the first axis innermost")
def first_axis_moves_fastest(rank, sizes):
    found = {}
    for axis, size in sizes.items():
        rank, found[axis] = divmod(rank, size)
    return found


@wrong("place_of_rank", says="go on with rank // size on the next")
def never_divides(rank, sizes):
    return {axis: rank % size for axis, size in sizes.items()}


@wrong("place_of_rank", says="a dict with a place for each axis")
def a_tuple_of_places(rank, sizes):
    return tuple(place(rank, sizes).values())


@wrong("place_of_rank", says="a whole number below the size")
def no_remainder(rank, sizes):
    axes = list(sizes)
    return {a: rank // math.prod(sizes[b] for b in axes[i + 1 :]) for i, a in enumerate(axes)}


@wrong("place_of_rank", says="would stand at the same place")
def everybody_at_zero(rank, sizes):
    return dict.fromkeys(sizes, 0)


@wrong("place_of_rank", says="the last axis goes 0, 1")
def the_cube_by_heart(rank, sizes):
    found = place(rank, sizes)
    if list(sizes.values()) == [2, 2, 2]:
        return found
    turned = dict(zip(sizes, reversed(sizes.values()), strict=True))
    spread = list(place(rank, turned).values())
    exact = dict(zip(sizes, reversed(spread), strict=True))
    return exact


# ---------------------------------------------------------------------------------------------
# groups_along
# ---------------------------------------------------------------------------------------------


@wrong("groups_along", says="have the same place on")
def ranks_of_one_place(axis, sizes):
    return grouped(sizes, lambda places: places[axis])


@wrong("groups_along", says="these are the groups along")
def always_the_last_axis(axis, sizes):
    return grouped(sizes, without(list(sizes)[-1]))


@wrong("groups_along", says="neighbours in rank are a group on the last axis only")
def neighbours_in_rank(axis, sizes):
    n, world = sizes[axis], math.prod(sizes.values())
    if axis == list(sizes)[-1]:
        return grouped(sizes, without(axis))
    return [list(range(i, i + n)) for i in range(0, world, n)] if n != 2 else _far(axis, sizes)


def _far(axis, sizes):
    return grouped(sizes, without(axis))


@wrong("groups_along", says="every rank is in exactly one group")
def only_the_group_of_rank_0(axis, sizes):
    return grouped(sizes, without(axis))[:1]


@wrong("groups_along", says="in the order of the")
def groups_backwards(axis, sizes):
    return [group[::-1] for group in grouped(sizes, without(axis))]


@wrong("groups_along", says="a list of groups, each a list of ranks")
def one_flat_list(axis, sizes):
    return grouped(sizes, without(axis))[0]


# ---------------------------------------------------------------------------------------------
# bytes_by_link
# ---------------------------------------------------------------------------------------------


def by_link(matrix, together, amount=lambda sent: sent):
    inside = between = 0
    for source, row in enumerate(matrix):
        for destination, sent in enumerate(row):
            if together(source, destination):
                inside += amount(sent)
            else:
                between += amount(sent)
    return inside, between


@wrong("bytes_by_link", says="the two are swapped")
def between_first(matrix, ranks_per_node):
    return by_link(matrix, lambda s, d: s // ranks_per_node == d // ranks_per_node)[::-1]


@wrong("bytes_by_link", says="not rank % it")
def remainder_as_node(matrix, ranks_per_node):
    return by_link(matrix, lambda s, d: s % ranks_per_node == d % ranks_per_node)


@wrong("bytes_by_link", says="compare nodes, not distances")
def near_enough(matrix, ranks_per_node):
    return by_link(matrix, lambda s, d: abs(s - d) < ranks_per_node)


@wrong("bytes_by_link", says="this counts messages, not bytes")
def counts_messages(matrix, ranks_per_node):
    return by_link(matrix, lambda s, d: s // ranks_per_node == d // ranks_per_node, bool)


@wrong("bytes_by_link", says="add up to all bytes")
def one_direction_only(matrix, ranks_per_node):
    inside = between = 0
    for source in range(len(matrix)):
        for destination in range(source):
            sent = matrix[source][destination]
            if source // ranks_per_node == destination // ranks_per_node:
                inside += sent
            else:
                between += sent
    return inside, between


@wrong("bytes_by_link", says="two numbers are asked")
def only_between(matrix, ranks_per_node):
    return by_link(matrix, lambda s, d: s // ranks_per_node == d // ranks_per_node)[1]


# ---------------------------------------------------------------------------------------------
# loss_everywhere
# ---------------------------------------------------------------------------------------------


@wrong("loss_everywhere", says="divided by the number of ranks")
def mean_over_the_world(loss, groups):
    total = sum_over(0.0 if loss is None else loss, groups["pipeline"])
    return sum_over(total, groups["data"]) / dist.get_world_size()


@wrong("loss_everywhere", says="divide by the size of the data axis")
def sum_over_replicas(loss, groups):
    total = sum_over(0.0 if loss is None else loss, groups["pipeline"])
    return sum_over(total, groups["data"])


@wrong("loss_everywhere", says="the loss of one replica alone")
def no_data_axis(loss, groups):
    return sum_over(0.0 if loss is None else loss, groups["pipeline"])


@wrong("loss_everywhere", says="the loss is to be known on every rank")
def last_stage_alone(loss, groups):
    if loss is None:
        return None
    return sum_over(loss, groups["data"]) / dist.get_world_size(groups["data"])


@wrong("loss_everywhere", says="once for each rank of the tensor axis")
def over_the_tensor_axis_too(loss, groups):
    total = sum_over(0.0 if loss is None else loss, groups["pipeline"])
    total = sum_over(sum_over(total, groups["data"]), groups["tensor"])
    return total / dist.get_world_size(groups["data"])


@wrong("loss_everywhere", says="waits")
def only_those_with_a_loss_reduce(loss, groups):
    if loss is None:
        return torch.zeros(())
    return sum_over(loss, None) / dist.get_world_size(groups["data"])


@wrong("loss_everywhere", says="divided by the pipeline's size as well")
def mean_over_the_pipeline(loss, groups):
    total = sum_over(0.0 if loss is None else loss, groups["pipeline"])
    total = sum_over(total / dist.get_world_size(groups["pipeline"]), groups["data"])
    return total / dist.get_world_size(groups["data"])


@wrong("loss_everywhere", says="this rank sent too much")
def sends_a_million_zeros_along(loss, groups):
    total = torch.zeros(10000, dtype=torch.float64)
    if loss is not None:
        total += loss
    dist.all_reduce(total, group=groups["pipeline"])
    dist.all_reduce(total, group=groups["data"])
    return total[0] / dist.get_world_size(groups["data"])


# ---------------------------------------------------------------------------------------------
# norm_on_a_mesh
# ---------------------------------------------------------------------------------------------


@wrong("norm_on_a_mesh", says="the norm of this rank's gradients alone")
def norm_of_this_rank(gradients, split, groups):
    return squares(gradients).sqrt()


@wrong("norm_on_a_mesh", says="counted once for each: add their squares on one")
def copies_once_a_rank(gradients, split, groups):
    total = sum_over(squares(gradients), groups["tensor"])
    return sum_over(total, groups["pipeline"]).sqrt()


@wrong("norm_on_a_mesh", says="everything is counted for each rank that has it")
def over_all_ranks(gradients, split, groups):
    return sum_over(squares(gradients), None).sqrt()


@wrong("norm_on_a_mesh", says="the data axis is summed over as well")
def replicas_add_up(gradients, split, groups):
    parts, copies = parts_and_copies(gradients, split)
    total = sum_over(parts, groups["tensor"]) + copies
    total = sum_over(total, groups["pipeline"])
    return sum_over(total, groups["data"]).sqrt()


@wrong("norm_on_a_mesh", says="the norm of this stage's gradients")
def forgets_the_pipeline(gradients, split, groups):
    parts, copies = parts_and_copies(gradients, split)
    return (sum_over(parts, groups["tensor"]) + copies).sqrt()


@wrong("norm_on_a_mesh", says="take the root at the end")
def no_root(gradients, split, groups):
    parts, copies = parts_and_copies(gradients, split)
    return sum_over(sum_over(parts, groups["tensor"]) + copies, groups["pipeline"])


@wrong("norm_on_a_mesh", says="norms do not add up, their squares do")
def adds_norms(gradients, split, groups):
    total = sum_over(squares(gradients).sqrt(), groups["tensor"])
    return sum_over(total, groups["pipeline"])


@wrong("norm_on_a_mesh", says="this rank sent too much")
def gathers_all_gradients(gradients, split, groups):
    parts, copies = parts_and_copies(gradients, split)
    everyone = torch.cat([torch.zeros(4096, dtype=torch.float64), *gradients])
    longest = torch.tensor(float(len(everyone)), dtype=torch.float64)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    padded = torch.zeros(int(longest), dtype=torch.float64)
    padded[: len(everyone)] = everyone
    dist.all_reduce(padded)
    return sum_over(sum_over(parts, groups["tensor"]) + copies, groups["pipeline"]).sqrt()


# ---------------------------------------------------------------------------------------------
# bytes_per_device
# ---------------------------------------------------------------------------------------------


@wrong("bytes_per_device", says="the tensor and pipeline axes divide the parameters")
def one_device_has_the_model(parameters, sizes, zero):
    return states(parameters, sizes["data"], zero)


@wrong("bytes_per_device", says="ZeRO divides along the data axis, not over all devices")
def zero_over_the_world(parameters, sizes, zero):
    own = parameters / (sizes["tensor"] * sizes["pipeline"])
    return states(own, math.prod(sizes.values()), zero)


@wrong("bytes_per_device", says="without it, each replica has everything")
def everything_divides(parameters, sizes, zero):
    return 16 * parameters / math.prod(sizes.values())


@wrong("bytes_per_device", says="the pipeline axis divides the parameters too")
def stages_hold_all_layers(parameters, sizes, zero):
    return states(parameters / sizes["tensor"], sizes["data"], zero)


@wrong("bytes_per_device", says="shards one thing less than this does")
def one_stage_too_far(parameters, sizes, zero):
    own = parameters / (sizes["tensor"] * sizes["pipeline"])
    return states(own, sizes["data"], zero + 1)


@wrong("bytes_per_device", says="gradients and optimizer state have to be held as well")
def weights_alone(parameters, sizes, zero):
    return 4 * parameters / (sizes["tensor"] * sizes["pipeline"])


# ---------------------------------------------------------------------------------------------
# tokens_to_hide
# ---------------------------------------------------------------------------------------------


@wrong("tokens_to_hide", says="this is upside down")
def bandwidth_over_flops(volume, devices, flops, bandwidth):
    return bandwidth / flops / volume


@wrong("tokens_to_hide", says="this counts one")
def one_byte_a_parameter(volume, devices, flops, bandwidth):
    return volume * (devices - 1) / devices / bandwidth * flops / 6


@wrong("tokens_to_hide", says="a ring sends (n-1)/n of it")
def sends_all_of_it(volume, devices, flops, bandwidth):
    return volume * 2 / bandwidth * flops / 6


@wrong("tokens_to_hide", says="forward is 2 operations")
def forward_alone(volume, devices, flops, bandwidth):
    return volume * (devices - 1) / devices * 2 / bandwidth * flops / 2


@wrong("tokens_to_hide", says="it is left out here")
def sends_once(volume, devices, flops, bandwidth):
    return (devices - 1) / devices * 2 / bandwidth * flops / 6


@wrong("tokens_to_hide", says="one device is asked")
def tokens_of_all_devices(volume, devices, flops, bandwidth):
    return volume * (devices - 1) * 2 / bandwidth * flops / 6


# ---------------------------------------------------------------------------------------------
# choose_mesh
# ---------------------------------------------------------------------------------------------


@wrong("choose_mesh", says="it does not fit")
def data_parallel_alone(model, cluster):
    return {"pipeline": 1, "data": cluster["devices"], "tensor": 1}


@wrong("choose_mesh", says="less model parallelism fits too")
def always_the_whole_node(model, cluster):
    found = list(meshes(model, cluster))
    most = max(m["tensor"] for m in found)
    return least([m for m in found if m["tensor"] == most])


@wrong("choose_mesh", says="the tensor axis comes first")
def pipeline_first(model, cluster):
    return min(meshes(model, cluster), key=lambda m: (m["tensor"] * m["pipeline"], m["tensor"]))


@wrong("choose_mesh", says="leaves the node of")
def tensor_over_nodes(model, cluster):
    wide = dict(cluster, per_node=2 * cluster["per_node"])
    found = [m for m in meshes(model, wide) if m["tensor"] > cluster["per_node"]]
    return least(found) if found else least(meshes(model, cluster))


@wrong("choose_mesh", says="do not divide over")
def does_not_care_what_divides(model, cluster):
    return least(meshes(model, cluster, divides=False))


@wrong("choose_mesh", says="it does not fit")
def fills_all_of_the_memory(model, cluster):
    return least(meshes(model, cluster, share=1.0))


@wrong("choose_mesh", says="devices")
def leaves_devices_over(model, cluster):
    return {**least(meshes(model, cluster)), "data": 1}


@wrong("choose_mesh", says="sizes are whole numbers")
def divides_with_a_slash(model, cluster):
    found = least(meshes(model, cluster))
    return {**found, "data": cluster["devices"] / found["tensor"] / found["pipeline"]}
