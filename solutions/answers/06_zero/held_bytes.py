"""Known answers to held_bytes."""

import functools
from collections import defaultdict

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


@right
def held_bytes(tensors):
    seen, total = set(), 0
    for t in tensors:
        storage = None if t is None else t.untyped_storage()
        if storage is not None and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total += storage.size()
    return total


@wrong(says="memory that several tensors share is counted more than once")
def elements_times_size(tensors):
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


@wrong(says="these are elements")
def elements(tensors):
    return sum(t.numel() for t in tensors if t is not None)


@wrong(says="not every element has four bytes")
def four_bytes_each(tensors):
    return sum(4 * t.numel() for t in tensors if t is not None)


@wrong(says="a view keeps all of the tensor that it looks into")
def addresses_of_tensors(tensors):
    found = {t.data_ptr(): t.nbytes for t in tensors if t is not None}
    return sum(found.values())


@wrong(says="a view keeps all of the tensor that it looks into")
def the_size_of_a_view_by_storage(tensors):
    given = [t for t in tensors if t is not None]
    return sum({t.untyped_storage().data_ptr(): t.nbytes for t in given}.values())


@wrong(says="memory that several tensors share is counted more than once")
def tensors_told_apart_by_id(tensors):
    return sum({id(t): t.untyped_storage().nbytes() for t in tensors if t is not None}.values())


@wrong(says="None has no bytes")
def no_gradient_yet(tensors):
    return sum({t.untyped_storage().data_ptr(): t.nbytes for t in tensors}.values())


@right
def held_bytes_in_numpy(tensors):
    storages = [t.untyped_storage() for t in tensors if t is not None]
    rows = np.array([(s.data_ptr(), s.nbytes()) for s in storages])
    return np.unique(rows, axis=0)[:, 1].sum()


@right
def held_bytes_by_group(tensors):
    storages = (t.untyped_storage() for t in filter(lambda t: t is not None, tensors))
    found = defaultdict(int)
    for storage in storages:
        found[storage.data_ptr()] = max(found[storage.data_ptr()], len(storage))
    return sum(found.values())


@right
def held_bytes_functionally(tensors):
    def add(found, t):
        storage = None if t is None else t.untyped_storage()
        return found | ({(storage._cdata, storage.nbytes())} if storage else set())

    return torch.tensor([n for _, n in functools.reduce(add, tensors, frozenset())]).sum()


@wrong(says="two storages of the same size are two")
def told_apart_by_size(tensors):
    return sum({t.untyped_storage().nbytes() for t in tensors if t is not None})


@wrong(says="go through it only once")
def two_passes(tensors):
    found = {t.untyped_storage().data_ptr() for t in tensors if t is not None}
    sizes = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in tensors
        if t is not None
    }
    return sum(sizes[address] for address in found if address in sizes)


@wrong(says="what does the function keep from one call to the next")
def seen_for_ever(tensors, seen=set()):
    total = 0
    for t in tensors:
        if t is not None and t.untyped_storage().data_ptr() not in seen:
            seen.add(t.untyped_storage().data_ptr())
            total += t.untyped_storage().nbytes()
    return total


@right
def held_bytes_by_address(tensors):
    by_address = {}
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            storage = tensor.untyped_storage()
            by_address[storage.data_ptr()] = storage.nbytes()
    return sum(by_address.values())


@wrong(says="even one without any element")
def views_without_elements_left_out(tensors):
    found = [t for t in tensors if t is not None and t.numel()]
    storages = [t.untyped_storage() for t in found]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())
