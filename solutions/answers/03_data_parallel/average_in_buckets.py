"""Known answers to average_in_buckets."""

import functools
from collections import deque

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong
from course_lib.techniques.data_parallel import DataParallel


@right
def average_in_buckets(model, bucket_bytes):
    """Flat buffers that live as long as the model, with .grad as views of them."""
    n = dist.get_world_size()
    buckets, works = [], []
    for p in [p for p in model.parameters() if p.requires_grad][::-1]:
        if not buckets or buckets[-1]["bytes"] + p.nbytes > bucket_bytes:
            buckets.append({"parameters": [], "bytes": 0, "ready": 0})
        buckets[-1]["parameters"].append(p)
        buckets[-1]["bytes"] += p.nbytes

    def send(bucket):
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket["parameters"]]
        bucket["flat"] = torch.cat([part.reshape(-1) / n for part in parts])
        works.append(dist.all_reduce(bucket["flat"], async_op=True))

    def hook_of(bucket):
        def hook(_):
            bucket["ready"] += 1
            while len(works) < len(buckets):
                next_one = buckets[len(works)]
                if next_one["ready"] < len(next_one["parameters"]):
                    break
                send(next_one)

        return hook

    for bucket in buckets:
        for p in bucket["parameters"]:
            p.register_post_accumulate_grad_hook(hook_of(bucket))

    def synchronize():
        for bucket in buckets[len(works) :]:
            send(bucket)
        for bucket, work in zip(buckets, works, strict=True):
            work.wait()
            offset = 0
            for p in bucket["parameters"]:
                p.grad = bucket["flat"][offset : offset + p.numel()].view_as(p)
                offset += p.numel()
            bucket["ready"] = 0
        works.clear()

    return synchronize


def in_buckets(
    model,
    bucket_bytes,
    backwards=True,
    share=None,
    wait=False,
    at_the_end=False,
    flush=True,
    in_line=True,
    write_back=True,
    gradient_of=lambda p: p.grad,
    complete=None,
    clear=True,
):
    n = dist.get_world_size()
    parameters = [p for p in model.parameters() if p.requires_grad]
    buckets = []
    for p in parameters[::-1] if backwards else parameters:
        if not buckets or sum(q.nbytes for q in buckets[-1]) + p.nbytes > bucket_bytes:
            buckets.append([])
        buckets[-1].append(p)
    missing, under_way = [len(bucket) for bucket in buckets], {}

    def send(i):
        grads = [gradient_of(p) for p in buckets[i]]
        grads = [
            torch.zeros_like(p) if g is None else g for p, g in zip(buckets[i], grads, strict=True)
        ]
        buffer = torch.cat([g.detach().flatten() for g in grads])
        work = dist.all_reduce(buffer, async_op=True)
        if wait:
            work.wait()
        under_way[i] = work, buffer

    def hook_of(i):
        def hook(p):
            missing[i] -= 1
            if complete:
                missing[i] = 0 if complete(p, buckets[i]) else 1
            if at_the_end:
                return
            if not in_line and missing[i] == 0:
                send(i)
            while in_line and len(under_way) < len(buckets) and missing[len(under_way)] == 0:
                send(len(under_way))

        return hook

    for i, bucket in enumerate(buckets):
        for p in bucket:
            p.register_post_accumulate_grad_hook(hook_of(i))

    def synchronize():
        for i in range(len(buckets)):
            if flush and i not in under_way:
                send(i)
        for i, (work, buffer) in under_way.items():
            work.wait()
            buffer *= 1 / n if share is None else share
            parts = buffer.split([p.numel() for p in buckets[i]])
            for p, part in zip(buckets[i], parts, strict=True):
                if write_back:
                    p.grad = part.view_as(p)
        if clear:
            under_way.clear()
        missing[:] = [len(bucket) for bucket in buckets]

    return synchronize


@right
def buckets_of_what_hooks_get(model, bucket_bytes):
    """Hooks of tensors, which get the gradient; kept by parameter, averaged on arrival."""
    n = dist.get_world_size()
    parameters = [p for p in model.parameters() if p.requires_grad]
    buckets, kept, flying = [[]], {}, []
    for p in reversed(parameters):
        if buckets[-1] and sum(q.nbytes for q in buckets[-1]) + p.nbytes > bucket_bytes:
            buckets.append([])
        buckets[-1].append(p)

    def leave(everything=False):
        while len(flying) < len(buckets):
            bucket = buckets[len(flying)]
            if not everything and any(p not in kept for p in bucket):
                return
            parts = [kept.get(p, torch.zeros_like(p)).reshape(-1) for p in bucket]
            flat = torch.cat(parts)
            flying.append((dist.all_reduce(flat, async_op=True), flat, bucket))

    def note(p, gradient):
        kept[p] = gradient.detach().clone()
        leave()

    for p in parameters:
        p.register_hook(functools.partial(note, p))

    def synchronize():
        leave(everything=True)
        for work, flat, bucket in flying:
            work.wait()
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                p.grad = part.view_as(p) / n
        flying.clear()
        kept.clear()

    return synchronize


class Buckets:
    """The same as an object: what it returns is a bound method."""

    def __init__(self, model, bucket_bytes):
        self.buckets, self.works = [], []
        room = 0
        for p in [p for p in model.parameters() if p.requires_grad][::-1]:
            if p.nbytes > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= p.nbytes
            p.register_post_accumulate_grad_hook(self.arrived)
        self.ready = set()

    def arrived(self, parameter):
        self.ready.add(parameter)
        self.send(lambda bucket: self.ready.issuperset(bucket))

    def send(self, may_leave):
        for bucket in self.buckets[len(self.works) :]:
            if not may_leave(bucket):
                break
            for p in bucket:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            flat = torch.nn.utils.parameters_to_vector([p.grad for p in bucket])
            self.works.append((dist.all_reduce(flat, async_op=True), flat))

    def synchronize(self):
        self.send(lambda bucket: True)
        for bucket, (work, flat) in zip(self.buckets, self.works, strict=True):
            work.wait()
            flat.div_(dist.get_world_size())
            torch.nn.utils.vector_to_parameters(flat, [p.grad for p in bucket])
        self.works, self.ready = [], set()


@right
def buckets_of_an_object(model, bucket_bytes):
    return Buckets(model, bucket_bytes).synchronize


@wrong(says="exactly 2 times the reference: you summed, an average is")
def bucket_sums(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, share=1.0)


@wrong(says="exactly 1/2 of the reference: divided by the number of ranks tw")
def bucket_divided_twice(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, share=1 / dist.get_world_size() ** 2)


@wrong(says="this is the rank's own gradient, which nobody has averaged")
def buckets_never_copied_back(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, write_back=False)


@wrong(says="this is the parameter itself: a hook of register_post_accumulate")
def the_hooks_argument_as_gradient(model, bucket_bytes):
    """The argument of the hook is the parameter: picotron's hook took it for the gradient."""
    return in_buckets(model, bucket_bytes, gradient_of=lambda grad: grad)


@wrong(says="all of them went out when backward was at its end")
def buckets_from_the_first_layer(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, backwards=False)


@wrong(says="began after backward had ended")
def buckets_after_backward(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, at_the_end=True)


@wrong(says="there is a wait for the all_reduce inside backward")
def buckets_waited_for_in_the_hook(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, wait=True)


@wrong(says="more all-reduces than buckets are needed")
def a_bucket_for_each_gradient(model, bucket_bytes):
    return in_buckets(model, 1)


@wrong(says="a bucket is larger than bucket_bytes")
def one_bucket_for_all(model, bucket_bytes):
    return in_buckets(model, 10**9)


@wrong(says="never leaves, so send it in synchronize, with zeros")
def what_is_missing_is_forgotten(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, flush=False)


@wrong(says="Send a bucket when it is complete and all before it have left")
def buckets_out_of_line(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, in_line=False)


@wrong(says="return the function synchronize itself")
def synchronize_is_called(model, bucket_bytes):
    return in_buckets(model, bucket_bytes)()


@wrong(says="your function calls course_lib.techniques")
def the_courses_own_buckets(model, bucket_bytes):
    DataParallel(model, None, bucket_bytes, bucket_bytes)
    return lambda: None


@wrong(says="the one that is listed last need not come last")
def when_the_last_listed_is_there(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, complete=lambda p, bucket: p is bucket[-1])


@wrong(says="Step 0 was right: what is still there from it?")
def works_are_never_cleared(model, bucket_bytes):
    return in_buckets(model, bucket_bytes, clear=False)


@wrong(says="function that is made in a loop reads `number` when it runs")
def hooks_that_read_the_loops_variable(model, bucket_bytes):
    synchronize_all = in_buckets(model, bucket_bytes)
    ready = {}
    for number, parameter in enumerate(p for p in model.parameters() if p.requires_grad):
        parameter.register_post_accumulate_grad_hook(lambda p: ready.update({number: p.grad}))

    def synchronize():
        synchronize_all()
        for parameter, number in zip(
            (p for p in model.parameters() if p.requires_grad), sorted(ready), strict=False
        ):
            parameter.grad = ready[number]

    return synchronize


@right
def buckets_with_a_pointer(model, bucket_bytes):
    """A dictionary from parameter to bucket, and the number of the next bucket to leave."""
    parameters = [p for p in model.parameters() if p.requires_grad][::-1]
    number_of, filled, count = {}, 0, 0
    for p in parameters:
        if filled and filled + p.numel() * p.element_size() > bucket_bytes:
            count, filled = count + 1, 0
        number_of[p] = count
        filled += p.numel() * p.element_size()
    state = {"next": 0, "ready": set(), "works": []}

    def members(number):
        return [p for p in parameters if number_of[p] == number]

    def leave(number):
        row = torch.cat(
            [
                (torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1)
                for p in members(number)
            ]
        )
        state["works"].append((number, row, dist.all_reduce(row, async_op=True)))
        state["next"] += 1

    def hook(p):
        state["ready"].add(p)
        while state["next"] <= count and state["ready"].issuperset(members(state["next"])):
            leave(state["next"])

    for p in parameters:
        p.register_post_accumulate_grad_hook(hook)

    def synchronize():
        while parameters and state["next"] <= count:
            leave(state["next"])
        for number, row, work in state["works"]:
            work.wait()
            row.div_(dist.get_world_size())
            for p in members(number):
                p.grad, row = row[: p.numel()].view(p.shape).clone(), row[p.numel() :]
        state.update(next=0, ready=set(), works=[])

    return synchronize


@right
def buckets_scaled_before_they_leave(model, bucket_bytes):
    """Divided on the way into the buffer, and added into zeros."""
    buckets, sizes = [[]], [0]
    for p in reversed(list(filter(lambda p: p.requires_grad, model.parameters()))):
        if buckets[-1] and sizes[-1] + p.nbytes > bucket_bytes:
            buckets.append([])
            sizes.append(0)
        buckets[-1].append(p)
        sizes[-1] += p.nbytes
    arrived, under_way, n = [0] * len(buckets), deque(), dist.get_world_size()

    def send():
        bucket = buckets[len(under_way)]
        buffer = torch.zeros(sum(p.numel() for p in bucket), dtype=bucket[0].dtype)
        for p, part in zip(bucket, buffer.split([p.numel() for p in bucket]), strict=True):
            if p.grad is not None:
                part.copy_(p.grad.view(-1)).div_(n)
        under_way.append((bucket, buffer, dist.all_reduce(buffer, async_op=True)))

    def hook(number, _):
        arrived[number] += 1
        while len(under_way) < len(buckets) and arrived[len(under_way)] == len(
            buckets[len(under_way)]
        ):
            send()

    for number, bucket in enumerate(buckets):
        for p in bucket:
            p.register_post_accumulate_grad_hook(functools.partial(hook, number))

    def synchronize():
        while len(under_way) < len(buckets):
            send()
        while under_way:
            bucket, buffer, work = under_way.popleft()
            work.wait()
            for p in bucket:
                p.grad = buffer[: p.numel()].reshape(p.shape)
                buffer = buffer[p.numel() :]
        arrived[:] = [0 for _ in buckets]

    return synchronize


@wrong(says="waited for gradients of others")
def all_but_the_first_at_the_end(model, bucket_bytes):
    """The first bucket leaves at once, and the last gradient takes all others along."""
    parameters = [p for p in model.parameters() if p.requires_grad][::-1]
    rows, room = [], 0
    for p in parameters:
        if not rows or p.nbytes > room:
            rows.append([])
            room = bucket_bytes
        rows[-1].append(p)
        room -= p.nbytes
    arrived, under_way = set(), []

    def send():
        row = rows[len(under_way)]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in row]
        buffer = torch.cat([grad.flatten() for grad in grads])
        under_way.append((row, buffer, dist.all_reduce(buffer, async_op=True)))

    def hook(p):
        arrived.add(p)
        if not under_way and arrived.issuperset(rows[0]):
            send()
        while len(arrived) == len(parameters) and len(under_way) < len(rows):
            send()

    for p in parameters:
        p.register_post_accumulate_grad_hook(hook)

    def synchronize():
        while len(under_way) < len(rows):
            send()
        for row, buffer, work in under_way:
            work.wait()
            buffer /= dist.get_world_size()
            for p, part in zip(row, buffer.split([p.numel() for p in row]), strict=True):
                p.grad = part.view_as(p)
        under_way.clear()
        arrived.clear()

    return synchronize
