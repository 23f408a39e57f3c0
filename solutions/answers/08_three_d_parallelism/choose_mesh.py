"""Known answers to choose_mesh."""

import itertools
from collections import OrderedDict
from fractions import Fraction

import numpy as np

from course_lib.checks.known_answers import right, wrong


@right
def choose_mesh(model, cluster):
    devices = cluster["devices"]
    for replica in range(1, devices + 1):
        if devices % replica:
            continue
        for tensor in range(min(replica, cluster["per_node"]), 0, -1):
            pipeline = replica // tensor
            if replica % tensor or model["heads"] % tensor or model["layers"] % pipeline:
                continue
            if cluster["per_node"] % tensor:
                continue
            need = model["parameters"] / replica * (4 + 12 * replica / devices)
            if need <= 0.6 * cluster["memory"]:
                return {"tensor": tensor, "pipeline": pipeline, "data": devices // replica}
    return None


def meshes(model, cluster, share=0.6, inside=True, divides=True):
    for t, p in itertools.product(range(1, cluster["per_node"] + 1), range(1, model["layers"] + 1)):
        if cluster["devices"] % (t * p) or (divides and model["heads"] % t):
            continue
        if inside and cluster["per_node"] % t:
            continue
        if divides and model["layers"] % p:
            continue
        d = cluster["devices"] // (t * p)
        if model["parameters"] / (t * p) * (4 + 12 / d) <= share * cluster["memory"]:
            yield {"pipeline": p, "data": d, "tensor": t}


def least(found):
    return min(found, key=lambda m: (m["tensor"] * m["pipeline"], -m["tensor"]))


@wrong(says="it does not fit")
def data_parallel_alone(model, cluster):
    return {"pipeline": 1, "data": cluster["devices"], "tensor": 1}


@wrong(says="less model parallelism fits too")
def always_the_whole_node(model, cluster):
    found = list(meshes(model, cluster))
    most = max(m["tensor"] for m in found)
    return least([m for m in found if m["tensor"] == most])


@wrong(says="the tensor axis comes first")
def pipeline_first(model, cluster):
    return min(meshes(model, cluster), key=lambda m: (m["tensor"] * m["pipeline"], m["tensor"]))


@wrong(says="leaves the node of")
def tensor_over_nodes(model, cluster):
    wide = dict(cluster, per_node=2 * cluster["per_node"])
    found = [m for m in meshes(model, wide) if m["tensor"] > cluster["per_node"]]
    return least(found) if found else least(meshes(model, cluster))


@wrong(says="lie on two nodes")
def no_larger_than_a_node(model, cluster):
    return least(meshes(model, cluster, inside=False))


@wrong(says="a mesh that fits is")
def goes_on_without_a_mesh(model, cluster):
    """Looks for powers of two only, finds none, and goes on."""
    best = None
    for mesh in meshes(model, cluster):
        if mesh["tensor"] in (1, 2, 4, 8) and mesh["tensor"] > 1:
            best = mesh if best is None else least([best, mesh])
    return least([best, *meshes(model, cluster)])


@wrong(says="cannot be split evenly")
def does_not_care_what_divides(model, cluster):
    return least(meshes(model, cluster, divides=False))


@wrong(says="it does not fit")
def fills_all_of_the_memory(model, cluster):
    return least(meshes(model, cluster, share=1.0))


@wrong(says="devices")
def leaves_devices_over(model, cluster):
    return {**least(meshes(model, cluster)), "data": 1}


@wrong(says="sizes are whole numbers")
def divides_with_a_slash(model, cluster):
    found = least(meshes(model, cluster))
    return {**found, "data": cluster["devices"] / found["tensor"] / found["pipeline"]}


@right
def choose_mesh_from_all(model, cluster):
    return least(meshes(model, cluster))


@right
def choose_mesh_by_fractions(model, cluster):
    room = Fraction(3, 5) * Fraction(cluster["memory"])
    axes = [
        (t * p, -t, p)
        for t in range(1, cluster["per_node"] + 1)
        for p in range(1, model["layers"] + 1)
        if cluster["devices"] % (t * p) == model["heads"] % t == model["layers"] % p == 0
        and cluster["per_node"] % t == 0
    ]
    for replica, minus, pipeline in sorted(axes):
        data = cluster["devices"] // replica
        if Fraction(model["parameters"]) / replica * (4 + Fraction(12, data)) <= room:
            return OrderedDict(tensor=-minus, pipeline=pipeline, data=data)
    return None


@right
def choose_mesh_in_numpy(model, cluster):
    t = np.arange(1, cluster["per_node"] + 1)[:, None]
    p = np.arange(1, model["layers"] + 1)[None, :]
    d, rest = np.divmod(cluster["devices"], t * p)
    fits = (rest == 0) & (model["heads"] % t == 0) & (model["layers"] % p == 0)
    fits &= cluster["per_node"] % t == 0
    with np.errstate(divide="ignore"):
        fits &= model["parameters"] / (t * p) * (4 + 12 / d) <= 0.6 * cluster["memory"]
    cost = np.where(fits, t * p - t / 1000, np.inf)
    i, j = np.unravel_index(cost.argmin(), cost.shape)
    return {"pipeline": p[0, j], "data": d[i, j], "tensor": t[i, 0]}


@right
def choose_mesh_by_data_axis(model, cluster):
    """From the most replicas down: fewest devices per replica is the same thing."""
    for data in range(cluster["devices"], 0, -1):
        replica, rest = divmod(cluster["devices"], data)
        if rest or model["parameters"] * (4 + 12 / data) > 0.6 * cluster["memory"] * replica:
            continue
        tensors = [
            t
            for t in range(1, cluster["per_node"] + 1)
            if replica % t == 0
            and model["heads"] % t == cluster["per_node"] % t == 0
            and model["layers"] % (replica // t) == 0
        ]
        if tensors:
            return {"pipeline": replica // max(tensors), "data": data, "tensor": max(tensors)}
    return None


@wrong(says="it does not fit")
def fewer_stages_than_layers(model, cluster):
    found = list(meshes({**model, "layers": model["layers"]}, cluster))
    fewer = [m for m in found if m["pipeline"] < model["layers"]]
    return least(fewer) if fewer else {"pipeline": 1, "data": cluster["devices"], "tensor": 1}


@wrong(says="inside a node the tensor axis comes first")
def tensor_axis_of_powers_of_two(model, cluster):
    found = list(meshes(model, cluster))
    powers = [m for m in found if m["tensor"] in (1, 2, 4, 8)]
    return least(powers or found)


@wrong(says="sizes are whole numbers")
def true_division(model, cluster):
    return {axis: size / 1 for axis, size in least(meshes(model, cluster)).items()}
