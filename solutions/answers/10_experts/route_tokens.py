"""Known answers to route_tokens."""

import torch
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong


def counted(experts, logits):
    return torch.bincount(experts.flatten(), minlength=logits.shape[1])


@right
def route_tokens(logits, k):
    weights, experts = logits.softmax(-1).topk(k)
    if k > 1:
        weights = weights / weights.sum(-1, keepdim=True)
    return experts, weights, counted(experts, logits)


@right
def softmax_over_the_chosen(logits, k):
    """As Mixtral writes it: the same numbers."""
    best, experts = logits.topk(k, dim=1)
    weights = best.softmax(1) if k > 1 else logits.softmax(1).gather(1, experts)
    return [experts, weights, F.one_hot(experts, logits.shape[1]).sum((0, 1))]


@right
def by_sorting(logits, k):
    experts = logits.argsort(dim=1, descending=True)[:, :k]
    weights = torch.exp(F.log_softmax(logits, dim=1)).gather(1, experts)
    counts = torch.tensor([int((experts == e).sum()) for e in range(logits.shape[1])])
    return experts, F.normalize(weights, p=1, dim=1) if k > 1 else weights, counts


@right
def best_after_best(logits, k):
    """The largest, then the largest of the rest, k times."""
    left, chosen = logits.clone(), []
    for _ in range(k):
        best = left.argmax(dim=1)
        chosen.append(best)
        left = left.scatter(1, best[:, None], -torch.inf)
    experts = torch.stack(chosen, dim=1)
    probabilities = torch.softmax(logits, dim=1)
    weights = torch.take_along_dim(probabilities, experts, dim=1)
    if k != 1:
        weights = weights / weights.sum(dim=1).unsqueeze(1)
    counts = torch.zeros(logits.size(1), dtype=torch.int64)
    return (
        experts,
        weights,
        counts.index_add(0, experts.flatten(), torch.ones_like(experts).flatten()),
    )


@right
def with_histc_and_exponentials(logits, k):
    exponentials = (logits - logits.amax(1, keepdim=True)).exp()
    largest, experts = torch.sort(exponentials, 1, descending=True)
    largest, experts = largest[:, :k], experts[:, :k]
    total = largest.sum(1, True) if k > 1 else exponentials.sum(1, True)
    counts = torch.histc(experts.float(), logits.shape[1], 0, logits.shape[1]).long()
    return experts, largest / total, counts


@wrong(says="divide them by their sum over the k chosen")
def not_normalised(logits, k):
    weights, experts = logits.softmax(-1).topk(k)
    return experts, weights, counted(experts, logits)


@wrong(says="and then no gradient reaches the router")
def always_normalised(logits, k):
    weights, experts = logits.topk(k)
    return experts, weights.softmax(-1), counted(experts, logits)


@wrong(says="a weight is a probability")
def raw_logits(logits, k):
    weights, experts = logits.topk(k)
    return experts, weights, counted(experts, logits)


@wrong(says="each token's own weights add up to 1")
def softmax_along_tokens(logits, k):
    experts = logits.topk(k).indices
    return experts, logits.softmax(0).gather(1, experts), counted(experts, logits)


@wrong(says="a sigmoid of each logit, and a softmax is expected")
def sigmoid_gate(logits, k):
    best, experts = logits.topk(k)
    weights = best.sigmoid()
    return experts, weights / weights.sum(-1, keepdim=True), counted(experts, logits)


@wrong(says="even for one that nobody chose")
def counts_without_the_idle(logits, k):
    experts, weights, _ = route_tokens(logits, k)
    return experts, weights, torch.bincount(experts.flatten())


@wrong(says="all k choices of a token count")
def counts_first_choices(logits, k):
    experts, weights, _ = route_tokens(logits, k)
    return experts, weights, counted(experts[:, 0], logits)


@wrong(says="cut off from the logits")
def weights_cut_off(logits, k):
    experts, weights, counts = route_tokens(logits.detach(), k)
    return experts, weights, counts


@wrong(says="the best one comes first")
def experts_by_number(logits, k):
    experts, weights, counts = route_tokens(logits, k)
    order = experts.argsort(1)
    return experts.gather(1, order), weights.gather(1, order), counts


@wrong(says="the experts with the smallest logits")
def the_worst(logits, k):
    experts = logits.topk(k, largest=False).indices
    return experts, logits.gather(1, experts).softmax(1), counted(experts, logits)


@wrong(says="three tensors are expected")
def only_experts(logits, k):
    return logits.topk(k).indices
