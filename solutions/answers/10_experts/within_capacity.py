"""Known answers to within_capacity."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong


def places_of(row, number):
    """The place of each choice in its expert's queue, from 1 on."""
    return F.one_hot(row, number).cumsum(0).gather(1, row[:, None])[:, 0]


def capacity(experts, number, factor):
    return math.ceil(factor * experts.numel() / number)


@right
def within_capacity(experts, number, factor):
    (tokens, k), row = experts.shape, experts.T.flatten()
    kept = places_of(row, number) <= capacity(experts, number, factor)
    return kept.view(k, tokens).T


@right
def by_counting(experts, number, factor):
    left = [capacity(experts, number, factor)] * number
    kept = torch.zeros_like(experts, dtype=torch.bool)
    for choice in range(experts.shape[1]):
        for token, expert in enumerate(experts[:, choice].tolist()):
            if left[expert] > 0:
                left[expert] -= 1
                kept[token, choice] = True
    return kept


@right
def expert_by_expert(experts, number, factor):
    most = -int(-factor * experts.numel() // number)
    kept = torch.zeros(experts.T.shape, dtype=torch.bool)
    for expert in range(number):
        found = (expert == experts.T).nonzero()[:most]
        kept[found[:, 0], found[:, 1]] = True
    return kept.T


@right
def in_numpy(experts, number, factor):
    chosen = experts.numpy()
    places = math.ceil(factor * chosen.size / number)
    row = chosen.T.ravel()
    kept = np.zeros(row.shape, dtype=bool)
    for expert in range(number):
        kept[np.flatnonzero(row == expert)[:places]] = True
    return torch.from_numpy(kept.reshape(chosen.shape[::-1]).T.copy())


@right
def by_a_stable_sort(experts, number, factor):
    """Sorted by expert, a choice's place is how far it is from where its expert begins."""
    row = torch.cat(experts.unbind(1))
    ordered, index = row.sort(stable=True)
    begins = torch.searchsorted(ordered, ordered)
    place = torch.arange(len(row)) - begins
    kept = torch.empty(len(row), dtype=torch.bool)
    kept[index] = place < capacity(experts, number, factor)
    return torch.stack(kept.chunk(experts.shape[1]), dim=1)


@wrong(says="no second choice is served before a first one")
def token_by_token(experts, number, factor):
    row = experts.flatten()
    return (places_of(row, number) <= capacity(experts, number, factor)).view(experts.shape)


@wrong(says="one place less")
def one_place_less(experts, number, factor):
    (tokens, k), row = experts.shape, experts.T.flatten()
    return (places_of(row, number) < capacity(experts, number, factor)).view(k, tokens).T


@wrong(says="one place more")
def one_place_more(experts, number, factor):
    (tokens, k), row = experts.shape, experts.T.flatten()
    return (places_of(row, number) - 1 <= capacity(experts, number, factor)).view(k, tokens).T


@wrong(says="rounded down, and it is rounded up")
def rounded_down(experts, number, factor):
    (tokens, k), row = experts.shape, experts.T.flatten()
    return (places_of(row, number) <= int(factor * tokens * k / number)).view(k, tokens).T


@wrong(says="and there are T k choices")
def places_for_tokens(experts, number, factor):
    (tokens, k), row = experts.shape, experts.T.flatten()
    return (places_of(row, number) <= math.ceil(factor * tokens / number)).view(k, tokens).T


@wrong(says="they share an expert's places")
def each_choice_by_itself(experts, number, factor):
    most = capacity(experts, number, factor)
    return torch.stack([places_of(column, number) <= most for column in experts.T], dim=1)


@wrong(says="what is dropped, and what is served is expected")
def what_is_dropped(experts, number, factor):
    return ~within_capacity(experts, number, factor)


@wrong(says="the last to come served first")
def last_come_first_served(experts, number, factor):
    (tokens, k), row = experts.shape, experts.T.flatten().flip(0)
    kept = places_of(row, number) <= capacity(experts, number, factor)
    return kept.flip(0).view(k, tokens).T


@wrong(says="of dtype bool")
def as_numbers(experts, number, factor):
    return within_capacity(experts, number, factor).long()


@wrong(says="the shape is wrong")
def transposed(experts, number, factor):
    return within_capacity(experts, number, factor).T.contiguous()
