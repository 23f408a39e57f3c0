"""Known answers to ring_owners."""

import bisect
from bisect import bisect_left

import numpy

from course_lib.checks.known_answers import right, wrong


@right
def ring_owners(keys, servers, points, place):
    """For every key the point with the shortest way up, round the ring."""
    ring = [(place(f"{s}/{i}"), s) for s in range(servers) for i in range(points)]
    owners = []
    for key in keys:
        at = place(key)
        owners.append(min(ring, key=lambda point: (point[0] - at) % 2**64)[1])
    return tuple(owners)


@right
def owners_by_searchsorted(keys, servers, points, place):
    """Numpy's unsigned numbers hold all places."""
    at = numpy.array([[place(f"{s}/{i}") for i in range(points)] for s in range(servers)], "uint64")
    order = at.reshape(-1).argsort()
    found = at.reshape(-1)[order].searchsorted(numpy.array([place(k) for k in keys], "uint64"))
    return order[found % len(order)] // points


@right
def owners_with_an_end_of_the_ring(keys, servers, points, place):
    """The first point once more, behind all places."""
    ring = sorted_ring(servers, points, place)
    ring.append((2**64, ring[0][1]))
    return [next(server for at, server in ring if at >= place(key)) for key in keys]


def sorted_ring(servers, points, place):
    return sorted((place(f"{s}/{i}"), s) for s in range(servers) for i in range(points))


@wrong(says="this is the place modulo the number of servers")
def modulo(keys, servers, points, place):
    return [place(key) % servers for key in keys]


@wrong(says="only one point of each server is on the ring")
def one_point_each(keys, servers, points, place):
    ring = sorted_ring(servers, 1, place)
    places = [at for at, _ in ring]
    return [ring[bisect_left(places, place(key)) % len(ring)][1] for key in keys]


@wrong(says="this is the one below")
def the_point_below(keys, servers, points, place):
    ring = sorted_ring(servers, points, place)
    places = [at for at, _ in ring]
    return [ring[bisect_left(places, place(key)) - 1][1] for key in keys]


@wrong(says="above the last point the ring starts again")
def no_way_round(keys, servers, points, place):
    ring = sorted_ring(servers, points, place)
    places = [at for at, _ in ring]
    return [ring[min(bisect_left(places, place(key)), len(ring) - 1)][1] for key in keys]


@wrong(says="a key that lies exactly on a point belongs to that point")
def strictly_above(keys, servers, points, place):
    ring = sorted_ring(servers, points, place)
    return [next((server for at, server in ring if at > place(key)), ring[0][1]) for key in keys]


@wrong(says="this is the nearest point")
def nearest_point(keys, servers, points, place):
    ring = [(place(f"{s}/{i}"), s) for s in range(servers) for i in range(points)]
    return [min(ring, key=lambda point: abs(point[0] - place(key)))[1] for key in keys]


@wrong(says="a list with the number of a server for every key")
def names_of_points(keys, servers, points, place):
    ring = sorted((place(f"{s}/{i}"), f"{s}/{i}") for s in range(servers) for i in range(points))
    places = [at for at, _ in ring]
    return [ring[bisect_left(places, place(key)) % len(ring)][1] for key in keys]


@wrong(says="key 'c' lies above the highest point, where the ring starts again")
def an_index_behind_the_end(keys, servers, points, place):
    ring = sorted_ring(servers, points, place)
    places = [at for at, _ in ring]
    return [ring[bisect_left(places, place(key))][1] for key in keys]


@wrong(says="which is no point and no key: the points of server 0 are")
def points_of_other_names(keys, servers, points, place):
    return ring_owners(keys, servers, points, lambda text: place(text.replace("/", "-")))


@right
def owners_by_bisection(keys, servers, points, place):
    ring = {place(f"{s}/{i}"): s for s in range(servers) for i in range(points)}
    at = sorted(ring)
    return [ring[at[bisect.bisect_left(at, place(key)) % len(at)]] for key in keys]


@right
def owners_by_merging(keys, servers, points, place):
    """Keys and points on one sorted line, walked from its end."""
    line = sorted(
        [(place(key), 0, number) for number, key in enumerate(keys)]
        + [(place(f"{s}/{i}"), 1, s) for s in range(servers) for i in range(points)]
    )
    owner = next(s for _, is_point, s in line if is_point)  # round the end of the ring
    found = [0] * len(keys)
    for _, is_point, number in reversed(line):
        if is_point:
            owner = number
        else:
            found[number] = owner
    return found


@wrong(says="a float has 53 bits")
def places_as_floats(keys, servers, points, place):
    ring = sorted((float(place(f"{s}/{i}")), s) for s in range(servers) for i in range(points))
    places = [at for at, _ in ring]
    return [ring[bisect_left(places, float(place(key))) % len(ring)][1] for key in keys]
