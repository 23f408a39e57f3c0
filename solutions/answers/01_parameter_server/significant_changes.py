"""Known answers to significant_changes."""

from collections import namedtuple

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


@right
def significant_changes(unsent, change, threshold):
    unsent.copy_(unsent + change)
    significant = (unsent > threshold) | (unsent < -threshold)
    indices = torch.arange(len(unsent))[significant]
    values = torch.index_select(unsent, 0, indices)
    unsent.masked_fill_(significant, 0.0)
    return [indices, values]


@right
def largest_first(unsent, change, threshold):
    unsent += change
    order = unsent.abs().argsort(descending=True)
    indices = order[unsent.abs()[order] > threshold]
    values = unsent[indices].clone()
    unsent[indices] = 0
    return indices, values


@right
def what_where_gives(unsent, change, threshold):
    total = unsent + change
    mask = total.abs() > threshold
    unsent[:] = torch.where(mask, torch.zeros_like(total), total)
    return torch.where(mask)[0], torch.masked_select(total, mask)


Changes = namedtuple("Changes", "indices values")


@right
def changes_by_name(unsent, change, threshold):
    unsent.add_(change)
    picked = torch.tensor([i for i, x in enumerate(unsent) if abs(x) > threshold], dtype=torch.long)
    found = Changes(picked, torch.stack([unsent[i] for i in picked]) if len(picked) else change[:0])
    unsent.index_fill_(0, picked, 0.0)
    return found


def filtered(unsent, change, threshold, mask=lambda unsent, t: unsent.abs() > t):
    unsent += change
    indices = mask(unsent, threshold).nonzero().reshape(-1)
    values = unsent[indices]
    unsent[indices] = 0
    return indices, values


@wrong(says="small ones add up")
def only_the_new_change(unsent, change, threshold):
    indices = (change.abs() > threshold).nonzero().reshape(-1)
    unsent += change
    values = unsent[indices]
    unsent[indices] = 0
    return indices, values


@wrong(says="a large negative change is significant as well")
def only_positive(unsent, change, threshold):
    return filtered(unsent, change, threshold, lambda unsent, t: unsent > t)


@wrong(says="above the threshold, not at it")
def at_the_threshold(unsent, change, threshold):
    return filtered(unsent, change, threshold, lambda unsent, t: unsent.abs() >= t)


@wrong(says="you clear the others as well")
def rest_thrown_away(unsent, change, threshold):
    indices, values = filtered(unsent, change, threshold)
    unsent.zero_()
    return indices, values


@wrong(says="what was sent is still there")
def sent_again_and_again(unsent, change, threshold):
    unsent += change
    indices = (unsent.abs() > threshold).nonzero().reshape(-1)
    return indices, unsent[indices]


@wrong(says="take the values before you clear them")
def cleared_too_early(unsent, change, threshold):
    unsent += change
    indices = (unsent.abs() > threshold).nonzero().reshape(-1)
    unsent[indices] = 0
    return indices, unsent[indices]


@wrong(says="`unsent` is as it was before the call")
def not_in_place(unsent, change, threshold):
    return filtered(unsent.clone(), change, threshold)


@wrong(says="what is sent has a sign")
def sizes_sent(unsent, change, threshold):
    indices, values = filtered(unsent, change, threshold)
    return indices, values.abs()


@wrong(says="it has been written to")
def change_used_as_buffer(unsent, change, threshold):
    change += unsent
    unsent.copy_(change)
    indices = (change.abs() > threshold).nonzero().reshape(-1)
    values = change[indices]
    unsent[indices] = 0
    return indices, values


@wrong(says="everything is sent")
def no_filter(unsent, change, threshold):
    indices = torch.arange(len(unsent))
    return indices, unsent + change


@wrong(says="`indices` is a tuple")
def the_tuple_of_where(unsent, change, threshold):
    unsent += change
    indices = torch.where(unsent.abs() > threshold)
    values = unsent[indices]
    unsent[indices] = 0
    return indices, values


@wrong(says="this sends only the new change")
def only_the_last_change_is_sent(unsent, change, threshold):
    indices, _ = filtered(unsent, change, threshold)
    return indices, change[indices]


@right
def changes_of_numpy(unsent, change, threshold):
    """On numpy's view of the same memory."""
    memory = unsent.numpy()
    memory += change.numpy()
    indices = np.flatnonzero(np.abs(memory) > threshold)
    values = memory[indices].copy()
    memory[indices] = 0
    return torch.from_numpy(indices), torch.from_numpy(values)
