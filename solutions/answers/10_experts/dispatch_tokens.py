"""Known answers to dispatch_tokens."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong

from ._common import dispatched, exchanged_counts, sent_and_received, sorted_there
from .exchange_with_gradient import exchange_with_gradient, moved


def refuse(number):
    n = dist.get_world_size()
    if number % n:
        raise ValueError(f"{number} experts cannot be spread evenly over {n} ranks")


@right
def dispatch_tokens(x, experts, number):
    refuse(number)
    return dispatched(x, experts, number)


@right
def by_index_lists(x, experts, number):
    """Lists of positions for every expert, in plain Python."""
    refuse(number)
    n, k = dist.get_world_size(), experts.size(1)
    mine = number // n
    chosen = experts.flatten().tolist()
    order = [i for e in range(number) for i, each in enumerate(chosen) if each == e]
    counts = torch.tensor([chosen.count(e) for e in range(number)])
    theirs = exchanged_counts(counts).view(n, mine).tolist()
    sent = counts.view(n, mine).sum(1).tolist()
    received = [sum(row) for row in theirs]
    starts = {}
    at = 0
    for r in range(n):
        for e in range(mine):
            starts[r, e] = at
            at += theirs[r][e]
    again = [starts[r, e] + i for e in range(mine) for r in range(n) for i in range(theirs[r][e])]
    tokens = torch.tensor([i // k for i in order], dtype=torch.int64)
    rows = exchange_with_gradient(x[tokens], sent, received)[torch.tensor(again, dtype=torch.int64)]

    def back(outputs):
        there = torch.empty(len(again), dtype=torch.int64)
        there[again] = torch.arange(len(again))
        here = torch.empty(len(order), dtype=torch.int64)
        here[order] = torch.arange(len(order))
        returned = exchange_with_gradient(outputs[there], received, sent)
        return returned[here].unflatten(0, (len(x), k))

    return rows, [sum(row[e] for row in theirs) for e in range(mine)], back


@right
def by_scattering_back(x, experts, number):
    """The way back writes into place; index_copy is part of the graph."""
    refuse(number)
    (tokens, k), flat = experts.shape, experts.reshape(-1)
    _, order = flat.sort(stable=True)
    sent, received, theirs = sent_and_received(experts, number)
    again = sorted_there(theirs)
    copies = x.repeat_interleave(k, dim=0)
    rows = exchange_with_gradient(copies.index_select(0, order), sent, received)

    def back(outputs):
        unsorted = torch.zeros_like(outputs).index_copy(0, again, outputs)
        returned = exchange_with_gradient(unsorted, received, sent)
        placed = torch.zeros_like(returned).index_copy(0, order, returned)
        return placed.view(tokens, k, outputs.shape[1])

    return rows.index_select(0, again), theirs.sum(0), back


class Dispatch:
    """Sorts, sends, sorts again, and knows the way back."""

    def __init__(self, experts, number):
        (self.tokens, self.k), n = experts.shape, dist.get_world_size()
        self.order = torch.sort(experts.flatten(), stable=True).indices
        counts = torch.zeros(number, dtype=torch.int64)
        counts.index_add_(0, experts.flatten(), torch.ones_like(self.order))
        theirs = exchanged_counts(counts)
        self.table = theirs.reshape(n, -1)
        self.sent = [int(part.sum()) for part in counts.chunk(n)]
        self.received = [int(row.sum()) for row in self.table]

    def there(self, x):
        arrived = exchange_with_gradient(x[self.order.div(self.k).long()], self.sent, self.received)
        pieces = arrived.split(self.table.flatten().tolist())  # rank by rank
        mine = self.table.shape[1]
        return torch.cat([piece for e in range(mine) for piece in pieces[e::mine]])

    def back(self, outputs):
        n, mine = self.table.shape
        pieces = outputs.split(self.table.T.flatten().tolist())  # expert by expert
        leaving = torch.cat([piece for r in range(n) for piece in pieces[r::n]])
        home = exchange_with_gradient(leaving, self.received, self.sent)
        place = torch.empty_like(self.order)
        place[self.order] = torch.arange(len(place))
        return home[place].reshape(self.tokens, self.k, outputs.shape[-1])


@right
def in_pieces(x, experts, number):
    """The rows of one rank for one expert are a piece, and pieces are put in order."""
    refuse(number)
    dispatch = Dispatch(experts, number)
    return dispatch.there(x), dispatch.table.sum(0).tolist(), dispatch.back


@right
def expert_after_expert(x, experts, number):
    """Who chose each expert, by nonzero; on the way back every row is added to its place."""
    refuse(number)
    n, (tokens, k) = dist.get_world_size(), experts.shape
    mine = number // n
    chose = [(experts == e).nonzero() for e in range(number)]
    who = torch.cat(chose)
    counts = torch.tensor([len(each) for each in chose])
    theirs = exchanged_counts(counts).view(n, mine)
    sent = [sum(map(len, chose[r * mine : (r + 1) * mine])) for r in range(n)]
    arrived = exchange_with_gradient(x[who[:, 0]], sent, theirs.sum(1).tolist())
    expert = torch.cat([torch.repeat_interleave(torch.arange(mine), row) for row in theirs])
    again = torch.cat([(expert == e).nonzero()[:, 0] for e in range(mine)])

    def back(outputs):
        unsorted = outputs[torch.argsort(again)]
        home = exchange_with_gradient(unsorted, theirs.sum(1).tolist(), sent)
        result = home.new_zeros(tokens, k, home.shape[1])
        return result.index_put((who[:, 0], who[:, 1]), home)

    return arrived[again], torch.bincount(expert, minlength=mine), back


@wrong(says="sort what has arrived by expert")
def not_sorted_there(x, experts, number):
    refuse(number)
    k = experts.shape[1]
    order = experts.flatten().argsort(stable=True)
    sent, received, theirs = sent_and_received(experts, number)
    rows = exchange_with_gradient(x[order // k], sent, received)

    def back(outputs):
        returned = exchange_with_gradient(outputs, received, sent)
        return returned[order.argsort()].unflatten(0, (len(x), k))

    return rows, theirs.sum(0), back


def dispatched_with(undo):
    """As it is meant, but for the last step of the way back."""

    def answer(x, experts, number):
        refuse(number)
        k = experts.shape[1]
        order = experts.flatten().argsort(stable=True)
        sent, received, theirs = sent_and_received(experts, number)
        again = sorted_there(theirs)
        rows = exchange_with_gradient(x[order // k], sent, received)[again]

        def back(outputs):
            returned = exchange_with_gradient(outputs[again.argsort()], received, sent)
            return undo(returned, order).unflatten(0, (len(x), k))

        return rows, theirs.sum(0), back

    return answer


@wrong(says="put each one back to its token, with the inverse permutation")
def not_put_back(x, experts, number):
    return dispatched_with(lambda returned, order: returned)(x, experts, number)


@wrong(says="the way back needs the inverse of the permutation")
def sorted_twice(x, experts, number):
    return dispatched_with(lambda returned, order: returned[order])(x, experts, number)


@wrong(says="x gets no gradient")
def without_gradient_there(x, experts, number):
    rows, counts, back = dispatch_tokens(x.detach(), experts, number)
    return rows.requires_grad_(), counts, back


@wrong(says="x gets no gradient")
def without_gradient_back(x, experts, number):
    refuse(number)
    k = experts.shape[1]
    order = experts.flatten().argsort(stable=True)
    sent, received, theirs = sent_and_received(experts, number)
    again = sorted_there(theirs)
    rows = exchange_with_gradient(x[order // k], sent, received)[again]

    def back(outputs):
        returned = moved(outputs.detach()[again.argsort()], received, sent)
        return returned[order.argsort()].unflatten(0, (len(x), k))

    return rows, theirs.sum(0), back


@wrong(says="a rank has no token")
def without_saying_how_wide(x, experts, number):
    rows, counts, back = dispatch_tokens(x, experts, number)
    return (
        rows,
        counts,
        lambda outputs: back(outputs).flatten(0, 1).view(len(x), experts.shape[1], -1),
    )


@wrong(says="raise a ValueError with both numbers")
def refuses_nobody(x, experts, number):
    if number % dist.get_world_size():
        return x, [], None
    return dispatched(x, experts, number)


@wrong(says="raise a ValueError with both numbers")
def refuses_without_numbers(x, experts, number):
    if number % dist.get_world_size():
        raise ValueError("these experts cannot be spread evenly")
    return dispatched(x, experts, number)


@wrong(says="rank r has m experts one after the other")
def experts_in_turn(x, experts, number):
    """Expert e on rank e % n."""
    refuse(number)
    n = dist.get_world_size()
    renamed = experts % n * (number // n) + experts // n
    return dispatched(x, renamed, number)


@wrong(says="but not counts")
def counts_of_its_own_tokens(x, experts, number):
    rows, counts, back = dispatch_tokens(x, experts, number)
    n, rank = dist.get_world_size(), dist.get_rank()
    own = torch.bincount(experts.flatten(), minlength=number).view(n, -1)[rank]
    return rows, own, back


@wrong(says="three are expected")
def only_rows(x, experts, number):
    return dispatch_tokens(x, experts, number)[0]


@wrong(says="back is a function of the outputs")
def back_is_a_permutation(x, experts, number):
    rows, counts, _ = dispatch_tokens(x, experts, number)
    return rows, counts, experts.flatten().argsort(stable=True).argsort()


@wrong(says="but not what is sent")
def tokens_sent_twice(x, experts, number):
    """Once to see how much there is, once in earnest."""
    refuse(number)
    dispatched(x.detach(), experts, number)
    return dispatched(x, experts, number)


@wrong(says="a count of 8 bytes for each expert")
def an_exchange_more(x, experts, number):
    refuse(number)
    n = dist.get_world_size()
    dist.all_to_all_single(torch.empty(n), torch.zeros(n))
    return dispatched(x, experts, number)
