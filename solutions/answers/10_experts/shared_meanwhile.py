"""Known answers to shared_meanwhile."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


def begun(rows, sent, received):
    arrived = rows.new_empty(sum(received), *rows.shape[1:])
    return arrived, dist.all_to_all_single(arrived, rows, received, sent, async_op=True)


@right
def shared_meanwhile(rows, sent, received, run, x, shared):
    arrived, there = begun(rows, sent, received)
    own = shared[0](x)
    there.wait()
    outputs = run(arrived)
    returned, back = begun(outputs, received, sent)
    own = own + shared[1](x)
    back.wait()
    return returned, own


@right
def with_a_list(rows, sent, received, run, x, shared):
    parts, tensor, sizes = [], rows, [sent, received]
    for index, function in enumerate(shared):
        target = torch.zeros(sum(sizes[1]), rows.shape[1], dtype=rows.dtype)
        work = dist.all_to_all_single(
            target, tensor, output_split_sizes=sizes[1], input_split_sizes=sizes[0], async_op=True
        )
        parts.append(function(x))
        work.wait()
        tensor, sizes = (run(target) if index == 0 else target), sizes[::-1]
    return [tensor, torch.stack(parts).sum(0)]


@right
def with_inner_functions(rows, sent, received, run, x, shared):
    def travel(tensor, to, come, meanwhile):
        target, handle = begun(tensor, to, come)
        made = meanwhile(x)
        handle.wait()
        return target, made

    arrived, first = travel(rows, sent, received, shared[0])
    returned, second = travel(run(arrived), received, sent, shared[1])
    return returned, first + second


@right
def with_generators(rows, sent, received, run, x, shared):
    """A journey stops where there is time for something else."""

    def journey(tensor, to, come):
        arrived = torch.empty(sum(come), tensor.shape[1], dtype=tensor.dtype)
        work = dist.all_to_all_single(arrived, tensor, come, to, async_op=True)
        yield
        work.wait()
        yield arrived

    there = journey(rows, sent, received)
    next(there)
    first = shared[0](x)
    back = journey(run(next(there)), received, sent)
    next(back)
    second = shared[1](x)
    return next(back), torch.add(first, second)


class Under:
    """What is computed inside of `with` hides a message."""

    def __init__(self, tensor, to, come):
        self.result = torch.empty(sum(come), tensor.shape[1], dtype=tensor.dtype)
        self.arguments = self.result, tensor.contiguous(), come, to

    def __enter__(self):
        self.work = dist.all_to_all_single(*self.arguments, async_op=True)
        return self

    def __exit__(self, *_):
        self.work.wait()


@right
def with_a_context(rows, sent, received, run, x, shared):
    with Under(rows, sent, received) as there:
        own = shared[0](x).clone()
    with Under(run(there.result), received, sent) as back:
        own += shared[1](x)
    return back.result, own


@wrong(says="the call for all_to_all 1 itself had waited")
def blocking(rows, sent, received, run, x, shared):
    arrived = rows.new_empty(sum(received), rows.shape[1])
    dist.all_to_all_single(arrived, rows, received, sent)
    own = shared[0](x)
    outputs = run(arrived)
    returned = torch.empty_like(rows)
    dist.all_to_all_single(returned, outputs, sent, received)
    return returned, own + shared[1](x)


@wrong(says="when shared[0] runs, all_to_all 1 had not begun")
def shared_first(rows, sent, received, run, x, shared):
    own = shared[0](x) + shared[1](x)
    arrived, there = begun(rows, sent, received)
    there.wait()
    returned, back = begun(run(arrived), received, sent)
    back.wait()
    return returned, own


@wrong(says="when shared[0] runs, all_to_all 1 had been waited for")
def waits_at_once(rows, sent, received, run, x, shared):
    arrived, there = begun(rows, sent, received)
    there.wait()
    own = shared[0](x)
    returned, back = begun(run(arrived), received, sent)
    own = own + shared[1](x)
    back.wait()
    return returned, own


@wrong(says="when shared[1] runs, all_to_all 2 had not begun")
def both_on_the_way_there(rows, sent, received, run, x, shared):
    arrived, there = begun(rows, sent, received)
    own = shared[0](x) + shared[1](x)
    there.wait()
    returned, back = begun(run(arrived), received, sent)
    back.wait()
    return returned, own


@wrong(says="was not waited for")
def never_waits_back(rows, sent, received, run, x, shared):
    arrived, there = begun(rows, sent, received)
    own = shared[0](x)
    there.wait()
    returned, back = begun(run(arrived), received, sent)
    return returned, own + shared[1](x)


@wrong(says="reads a tensor before its values have arrived")
def reads_too_early(rows, sent, received, run, x, shared):
    arrived, there = begun(rows, sent, received)
    own = shared[0](x)
    outputs = run(arrived)
    there.wait()
    returned, back = begun(outputs, received, sent)
    own = own + shared[1](x)
    back.wait()
    return returned, own


@wrong(says="outputs go back to where the rows are from")
def stays_there(rows, sent, received, run, x, shared):
    arrived, there = begun(rows, sent, received)
    own = shared[0](x)
    there.wait()
    return run(arrived), own + shared[1](x)


@wrong(says="the rows themselves, without experts")
def without_experts(rows, sent, received, run, x, shared):
    arrived, there = begun(rows, sent, received)
    own = shared[0](x)
    there.wait()
    run(arrived)
    returned, back = begun(arrived, received, sent)
    own = own + shared[1](x)
    back.wait()
    return returned, own


@wrong(says="only the first one's part")
def forgets_the_second(rows, sent, received, run, x, shared):
    returned, _ = shared_meanwhile(rows, sent, received, run, x, shared)
    return returned, shared[0](x)


@wrong(says="shared[0] should be called once")
def computes_twice(rows, sent, received, run, x, shared):
    shared[0](x)
    return shared_meanwhile(rows, sent, received, run, x, shared)


@wrong(says="two all-to-alls are enough")
def exchanges_sizes_too(rows, sent, received, run, x, shared):
    theirs = torch.empty(len(sent), dtype=torch.int64)
    dist.all_to_all_single(theirs, torch.tensor(sent))
    return shared_meanwhile(rows, sent, theirs.tolist(), run, x, shared)
