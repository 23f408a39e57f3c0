"""Known answers to held_bytes."""

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


@wrong(says="memory that several tensors share is counted more than once")
def tensors_told_apart_by_id(tensors):
    return sum({id(t): t.untyped_storage().nbytes() for t in tensors if t is not None}.values())


@wrong(says="None has no bytes")
def no_gradient_yet(tensors):
    return sum({t.untyped_storage().data_ptr(): t.nbytes for t in tensors}.values())
