"""Known answers to choose_mesh."""

import itertools

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
            need = model["parameters"] / replica * (4 + 12 * replica / devices)
            if need <= 0.6 * cluster["memory"]:
                return {"tensor": tensor, "pipeline": pipeline, "data": devices // replica}
    return None


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


@wrong(says="do not divide over")
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
