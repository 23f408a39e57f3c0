"""Each law rejects an answer that breaks it and nothing else, and lets the right ones pass."""

import itertools
import os
import random
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.checks import profiler_labels, reference
from course_lib.checks.call_answer import call_with_own_tensor, plain
from course_lib.checks.case_inputs import spread
from course_lib.checks.check_in_kernel import run_check
from course_lib.checks.compare_tensors import mismatch
from course_lib.checks.contract import Contract, Waits
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.laws import all_laws

HINTS = ("one", "two", "three")


def rejection(exercise: Exercise, answer: Any) -> str:
    """What the check says to `answer`, on one line; "" if it passes."""
    verdict = run_check(exercise, answer, random.Random(1))
    return "" if verdict.passed else " ".join(str(verdict).split())


def exercise(signature: str, cases: Any, on_rank: Any, judge: Any, contract: Contract) -> Exercise:
    return Exercise(
        "nb00_ranks.neighbours", signature, cases, on_rank, judge, HINTS, "it is", contract=contract
    )


# --------------------------------------------------------------------------------------------------
# A sum in place, on several ranks
# --------------------------------------------------------------------------------------------------


def two_shapes(rng: random.Random) -> list[Case]:
    return [
        Case(2, f"two tensors of shape {shape}", {"inputs": spread(rng, 2, shape)})
        for shape in ((2, 3), (4, 2))
    ]


def is_the_sum(case: Case, observation: Observation) -> Finding | None:
    want = reference.total(dict(enumerate(case.data["inputs"])))
    found = (mismatch(call.argument, want, rank) for rank, call in enumerate(observation.values))
    return next(filter(None, found), None)


IN_PLACE = Contract(in_place="tensor", transposed=True)
SUM = exercise("(tensor)", two_shapes, call_with_own_tensor, is_the_sum, IN_PLACE)


def summed(tensor):
    part = tensor.contiguous()
    dist.all_reduce(part)
    return tensor.copy_(part)


def summed_in_other_memory(tensor):
    part = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(part)
    tensor.data = part
    return tensor


def summed_beyond_the_view(tensor):
    storage = torch.empty(0).set_(tensor.untyped_storage())
    storage[:1] = 0
    return summed(tensor)


def summed_if_contiguous(tensor):
    part = tensor.view(-1).clone()
    dist.all_reduce(part)
    return tensor.copy_(part.view(tensor.shape))


def summed_in_a_group_of_its_own(tensor):
    part = tensor.contiguous()
    dist.all_reduce(part, group=dist.new_group())
    return tensor.copy_(part)


def summed_and_a_thread_stays(tensor):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return summed(tensor)


def summed_with_a_seed(tensor):
    torch.manual_seed(0)
    return summed(tensor)


def summed_with_a_variable(tensor):
    os.environ["NCCL_DEBUG"] = "INFO"
    return summed(tensor)


def summed_and_a_copy_returned(tensor):
    return summed(tensor).clone()


def summed_without_gradients(tensor):
    torch.set_grad_enabled(False)
    return summed(tensor)


def summed_once(tensor, done=[]):  # noqa: B006
    if not done:
        summed(tensor)
    done.append(tensor)
    return tensor


_SCRATCH: dict[str, torch.Tensor] = {"sum": torch.empty(0)}


def summed_in_a_scratch_buffer(tensor):
    if _SCRATCH["sum"].numel() < tensor.numel():
        _SCRATCH["sum"] = torch.empty(tensor.numel())
    part = _SCRATCH["sum"][: tensor.numel()].view(tensor.shape).copy_(tensor)
    dist.all_reduce(part)
    return tensor.copy_(part)


def summed_in_a_buffer_of_the_function(tensor):
    own = summed_in_a_buffer_of_the_function
    own.part = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(own.part)
    return tensor.copy_(own.part)


def summed_and_noted(tensor, seen=[]):  # noqa: B006
    seen.append(summed(tensor).clone())
    return tensor


_MASKS: dict[str, torch.Tensor] = {}


def summed_under_masks_for_each_size(tensor):
    """What is kept is the same whatever came in; of two masks one is made again and again."""
    rows = len(tensor)
    for name in (f"of {rows}", "last"):
        if name not in _MASKS or len(_MASKS[name]) != rows:
            _MASKS[name] = torch.ones(rows, 1)
    return summed(tensor).mul_(_MASKS[f"of {rows}"]).mul_(_MASKS["last"])


def sent_for_show(tensor):
    """The data goes by the store of the group; the message is only there to be counted."""
    sent_for_show.count = getattr(sent_for_show, "count", 0) + 1
    store, me = dist.distributed_c10d._get_default_store(), dist.get_rank()
    store.set(f"{sent_for_show.count}/{me}", ",".join(map(repr, tensor.flatten().tolist())))
    dist.all_reduce(torch.ones(tensor.numel()))
    other = store.get(f"{sent_for_show.count}/{1 - me}").decode().split(",")
    return tensor.add_(torch.tensor([float(number) for number in other]).view(tensor.shape))


def the_same_whatever_the_inputs(tensor):
    """As `sent_for_show`, and raises where another number arrives than everybody knows."""
    sent = torch.ones(tensor.numel())
    dist.all_reduce(sent)
    if not (sent == dist.get_world_size()).all():
        raise ValueError("somebody looks into my messages")
    return sent_for_show(tensor)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (summed_in_other_memory, "this is still the rank's own input"),
        (summed_beyond_the_view, "elements outside of the view have changed"),
        (summed_if_contiguous, "view size is not compatible"),
        (summed_in_a_group_of_its_own, "RuntimeError: an answer makes no process group"),
        (summed_and_a_thread_stays, "1 more threads than before the call"),
        (summed_with_a_seed, "the state of torch's random generator is not as it was before"),
        (summed_with_a_variable, "os.environ is not as it was before"),
        (summed_and_a_copy_returned, "another tensor than the one that was passed in"),
        (summed_without_gradients, "torch.is_grad_enabled() is not as it was before"),
        (summed_once, "was called before in the same process"),
        (summed_in_a_scratch_buffer, "the tensor in `_SCRATCH['sum']` is kept for the next call"),
        (
            summed_in_a_buffer_of_the_function,
            "buffer_of_the_function.part` is kept for the next call",
        ),
        (summed_and_noted, "the tensor in `seen[2]` is kept for the next call"),
        (sent_for_show, "makes no difference to any rank's result"),
        (the_same_whatever_the_inputs, "is the same whatever the inputs are"),
    ],
)
def test_a_sum_in_place_that_breaks_a_law(answer, says):
    assert says in rejection(SUM, answer)


@pytest.mark.parametrize("answer", [summed, summed_under_masks_for_each_size])
def test_a_sum_in_place_that_breaks_none(answer):
    assert rejection(SUM, answer) == ""


# --------------------------------------------------------------------------------------------------
# A result of its own
# --------------------------------------------------------------------------------------------------


def doubles(answer, case: Case) -> Any:
    return plain(answer(case.data["inputs"][0], list(case.data["factors"])))


def factors(rng: random.Random) -> list[Case]:
    case = {"inputs": spread(rng, 1, 3, torch.float64), "factors": [2, rng.randrange(3, 9)]}
    return [Case(1, "three numbers and two factors", case)]


def is_the_product(case: Case, observation: Observation) -> Finding | None:
    (value,) = case.data["inputs"]
    want = reference.moved(value * case.data["factors"][0] * case.data["factors"][1])
    return mismatch(observation.values[0], want, 0)


PURE = Contract(anew=True, allowed=frozenset())
PRODUCT = exercise("(tensor, factors)", factors, doubles, is_the_product, PURE)


def product(tensor, factors):
    return tensor * factors[0] * factors[1]


def product_eats_its_argument(tensor, factors):
    return tensor * factors.pop(0) * factors.pop(0)


def product_in_a_kept_buffer(tensor, factors, kept={}):  # noqa: B006
    out = kept.setdefault("out", torch.empty_like(tensor))
    return out.copy_(product(tensor, factors))


def product_the_first_time(tensor, factors, seen=[]):  # noqa: B006
    seen.append((tensor, factors))
    again = any(t is tensor for t, _ in seen[:-1])
    return tensor if again else product(tensor, factors)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (product_eats_its_argument, "the argument `factors` is not what it was before the call"),
        (product_in_a_kept_buffer, "what the function returned has changed while it was called"),
        (product_the_first_time, "a second call with the very same arguments gives something else"),
    ],
)
def test_a_result_that_breaks_a_law(answer, says):
    assert says in rejection(PRODUCT, answer)


def test_a_result_that_breaks_none():
    assert rejection(PRODUCT, product) == ""


# --------------------------------------------------------------------------------------------------
# A result that nobody else has, and that keeps no graph
# --------------------------------------------------------------------------------------------------


def three_ones(rng: random.Random) -> list[Case]:
    return [Case(1, "three ones", {})]


def asks_for_three(answer, case: Case) -> Any:
    return plain(answer(torch.ones(3, requires_grad=True)))


def is_three_ones(case: Case, observation: Observation) -> Finding | None:
    return mismatch(observation.values[0], reference.moved(torch.ones(3)), 0)


ONES = exercise("(like)", three_ones, asks_for_three, is_three_ones, Contract(detached=True))


def ones(like):
    return torch.ones(like.shape)


def ones_of_a_cache(like, kept={}):  # noqa: B006
    return kept.setdefault(like.shape, ones(like))


def ones_with_a_graph(like):
    return like / like


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (ones, ""),
        (ones_of_a_cache, "lies in the memory of what an earlier call returned"),
        (ones_with_a_graph, "still requires grad, and keeps the graph of the whole pass alive"),
    ],
)
def test_a_result_that_others_keep(answer, says):
    rejected = rejection(ONES, answer)
    assert says in rejected
    assert bool(rejected) == bool(says)


# --------------------------------------------------------------------------------------------------
# Several results, each in memory of its own
# --------------------------------------------------------------------------------------------------


def with_own_copy(answer, case: Case) -> Any:
    return plain(answer(case.data["inputs"][dist.get_rank()].clone()))


def is_everything(case: Case, observation: Observation) -> Finding | None:
    for rank, got in enumerate(observation.values):
        for part, tensor in zip(got, case.data["inputs"], strict=True):
            if finding := mismatch(part, reference.moved(tensor), rank):
                return finding
    return None


GATHERED = exercise("(tensor)", two_shapes, with_own_copy, is_everything, Contract(anew=True))


def gathered(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return parts


def gathered_in_one_tensor(tensor):
    """Parts of one tensor that do not overlap are each in memory of their own."""
    return list(torch.stack(gathered(tensor)))


def gathered_around_its_own(tensor):
    parts = gathered(tensor)
    parts[dist.get_rank()] = tensor
    return parts


def gathered_twice_over(tensor):
    both = torch.cat(gathered(tensor)).reshape(-1)
    return [both[: tensor.numel()].view(tensor.shape), both[-tensor.numel() :].view(tensor.shape)]


@pytest.mark.parametrize("answer", [gathered, gathered_in_one_tensor, gathered_twice_over])
def test_results_in_memory_of_their_own(answer):
    assert rejection(GATHERED, answer) == ""


def test_a_result_that_is_an_argument():
    says = "entry [0] of the result lies in the memory of `tensor`"
    assert says in rejection(GATHERED, gathered_around_its_own)


# --------------------------------------------------------------------------------------------------
# A model, and a function to be called after each backward
# --------------------------------------------------------------------------------------------------


def steps(rng: random.Random) -> list[Case]:
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    return [Case(1, "two steps", {"x": torch.randn(2, 3, 4, generator=generator)})]


def trained(answer, case: Case) -> Any:
    model = nn.Linear(4, 4, bias=False)
    nn.init.ones_(model.weight)
    step = answer(model)
    for x in case.data["x"]:
        model.zero_grad()
        loss = model(x).sum()
        with record_function("check: backward"):
            loss.backward()
        step()
    return plain(model.weight)


def has_descended(case: Case, observation: Observation) -> Finding | None:
    want = 1 - case.data["x"].sum((0, 1)).expand(4, 4)
    slack = torch.full_like(want, 1e-4).double()
    return mismatch(observation.values[0], reference.Reference(want.double(), slack, want.dtype), 0)


TRAINED = Contract(changes=("model",), allowed=frozenset(), held=lambda case, rank: 0)
DESCENT = exercise("(model)", steps, trained, has_descended, TRAINED)


def descent(model):
    def step():
        with torch.no_grad():
            model.weight -= model.weight.grad
        model.weight.grad = None

    return step


def descent_by_data(model):
    def step():
        model.weight.data = model.weight.data - model.weight.grad
        model.weight.grad = None

    return step


def descent_with_another_parameter(model):
    model.weight = nn.Parameter(model.weight.detach().clone())
    return descent(model)


def descent_in_eval_mode(model):
    model.eval()
    return descent(model)


def descent_with_a_hook(model):
    model.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return descent(model)


def descent_that_keeps_gradients(model):
    kept, step = [], descent(model)

    def keep_and_step():
        kept[:] = [model.weight.grad * 1, model.weight.grad * 2]
        step()

    return keep_and_step


def descent_that_keeps_more_each_time(model):
    """Nothing after the first step, and a gradient in two copies after the second."""
    kept, step, count = [], descent(model), itertools.count()

    def keep_and_step():
        kept.extend(model.weight.grad * factor for factor in range(2 * next(count)))
        step()

    return keep_and_step


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (descent_by_data, "`model.weight` lies in other memory than before the call"),
        (descent_with_another_parameter, "`model.weight` is another tensor than before the call"),
        (descent_in_eval_mode, "the mode (train or eval) of `model`"),
        (descent_with_a_hook, "1 more hooks than before the call"),
        (descent_that_keeps_more_each_time, "between calls more is kept in memory than is due"),
        (descent_that_keeps_gradients, "between calls more is kept in memory than is due"),
    ],
)
def test_training_that_breaks_a_law(answer, says):
    assert says in rejection(DESCENT, answer)


def test_training_that_breaks_none():
    assert rejection(DESCENT, descent) == ""


# --------------------------------------------------------------------------------------------------
# A model that is run once, and objects that lie elsewhere on every rank
# --------------------------------------------------------------------------------------------------


def one_row(rng: random.Random) -> list[Case]:
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    return [Case(1, "one row", {"x": torch.randn(4, generator=generator)})]


def doubled(answer, case: Case) -> Any:
    model = nn.Linear(4, 4)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    return plain(answer([model], case.data["x"]))


def is_twice_the_sum(case: Case, observation: Observation) -> Finding | None:
    want = 2 * case.data["x"].sum().expand(4).double()
    slack = torch.full_like(want, 1e-4)
    return mismatch(observation.values[0], reference.Reference(want, slack, torch.float32), 0)


ONCE = Contract(runs=lambda arguments: len(arguments["models"]), allowed=frozenset())
DOUBLE = exercise("(models, x)", one_row, doubled, is_twice_the_sum, ONCE)


def test_a_forward_pass_that_is_run_twice_breaks_a_law():
    says = rejection(DOUBLE, lambda models, x: models[0](x) + models[0](x))
    assert "`models` ran forward 2 times where 1 will do" in says
    assert rejection(DOUBLE, lambda models, x: 2 * models[0](x)) == ""


def parameters_of_a_set(answer, case: Case) -> list[str]:
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(40)))
    names = {parameter: name for name, parameter in model.named_parameters()}
    answer(model)
    return [names[parameter] for parameter in set(model.parameters())]


def test_a_set_of_parameters_has_another_order_on_every_rank():
    seen = []

    def noted(case: Case, observation: Observation) -> None:
        seen.append(observation.values)

    def two_ranks(rng: random.Random) -> list[Case]:
        return [Case(2, "a model", {})]

    assert (
        rejection(
            exercise(
                "(model)", two_ranks, parameters_of_a_set, noted, Contract(allowed=frozenset())
            ),
            lambda model: None,
        )
        == ""
    )
    assert all(sorted(one) == sorted(other) for one, other in seen)
    assert any(one != other for one, other in seen)


# --------------------------------------------------------------------------------------------------
# Messages that hide behind work
# --------------------------------------------------------------------------------------------------


def three_numbers(rng: random.Random) -> list[Case]:
    inputs = [torch.randn(3, generator=torch.Generator().manual_seed(rng.getrandbits(32)))]
    return [Case(2, "three numbers, one after the other", {"inputs": inputs})]


def one_by_one(answer, case: Case) -> Any:
    """`answer()` returns arrived(tensor), called for each number, and finish()."""
    numbers = [number.reshape(1).clone() for number in case.data["inputs"][0]]
    arrived, finish = answer()
    with record_function(profiler_labels.BACKWARD):
        for place, number in enumerate(numbers):
            profiler_labels.ready(place, number.nbytes)
            arrived(number)
    profiler_labels.moment(profiler_labels.label_of("pass"))
    with profiler_labels.meanwhile("the last thing runs", "all_reduce 3"):
        pass
    finish()
    return plain(torch.cat(numbers))


def is_doubled(case: Case, observation: Observation) -> Finding | None:
    want = reference.moved(2 * case.data["inputs"][0])
    found = (mismatch(got, want, rank) for rank, got in enumerate(observation.values))
    return next(filter(None, found), None)


def hidden(**demands) -> Exercise:
    contract = Contract(waits=(Waits(op="all_reduce", **demands),))
    return exercise("()", three_numbers, one_by_one, is_doubled, contract)


def sent_at_once():
    works = []
    return (
        lambda number: works.append(dist.all_reduce(number, async_op=True)),
        lambda: [work.wait() for work in works],
    )


def sent_and_waited_for():
    return dist.all_reduce, lambda: None


def sent_at_the_end():
    numbers = []
    return numbers.append, lambda: [dist.all_reduce(number) for number in numbers]


def sent_two_by_two():
    """The first leaves when the second is there, and the third in finish, to nobody's use."""
    numbers, works = [], []

    def send():
        works.extend(dist.all_reduce(number, async_op=True) for number in numbers)
        numbers.clear()

    def arrived(number):
        numbers.append(number)
        if len(numbers) == 2 or works:
            send()

    return arrived, lambda: [work.wait() for work in works]


IN_BACKWARD = {"begins": "backward", "promptly": True}
LAST = {"during": "the last one travels while the last thing runs"}


@pytest.mark.parametrize(
    ("demands", "answer", "says"),
    [
        ({"begins": "backward"}, sent_at_the_end, "3 all_reduces began after backward had ended"),
        (IN_BACKWARD, sent_at_the_end, "3 all_reduces began after backward had ended"),
        (IN_BACKWARD, sent_two_by_two, "was complete, with all before it gone, and waited"),
        ({"outlasts": "backward"}, sent_and_waited_for, "a wait for the all_reduce inside backw"),
        ({"reaches": "pass"}, sent_and_waited_for, "waits for its all_reduce before its next pass"),
        (LAST, sent_and_waited_for, "the call for all_reduce 3 itself had waited"),
        (LAST, sent_at_the_end, "all_reduce 3 had not begun"),
        ({"begins": "backward"}, sent_two_by_two, ""),
        ({"outlasts": "backward", **IN_BACKWARD, **LAST, "reaches": "pass"}, sent_at_once, ""),
    ],
)
def test_who_waits_where(demands, answer, says):
    rejected = rejection(hidden(**demands), answer)
    assert says in rejected
    assert bool(rejected) == bool(says)
    assert rejection(hidden(), answer) == "", "only the law of waits rejects it"


# --------------------------------------------------------------------------------------------------
# Every rank a Python of its own
# --------------------------------------------------------------------------------------------------

LETTERS = "abcdefgh"


def named(rng: random.Random) -> list[Case]:
    return [Case(2, "eight named numbers on 2 ranks", {"first": rng.randrange(9)})]


def of_own_numbers(answer, case: Case) -> Any:
    numbers = {letter: torch.ones(1) * (case.data["first"] + i) for i, letter in enumerate(LETTERS)}
    answer(numbers)
    return plain([numbers[letter] for letter in LETTERS])


def are_doubled(case: Case, observation: Observation) -> Finding | None:
    want = [2.0 * (case.data["first"] + i) for i in range(len(LETTERS))]
    wrong = [rank for rank, got in enumerate(observation.values) if torch.cat(got).tolist() != want]
    return Finding("these are not the sums", wrong[0]) if wrong else None


def summed_one_by_one(numbers):
    for name in numbers:
        dist.all_reduce(numbers[name])


def summed_as_a_set_goes(numbers):
    for name in set(numbers):
        dist.all_reduce(numbers[name])


def summed_as_a_sorted_set_goes(numbers):
    for name in sorted({name for name in numbers}):  # noqa: C416
        dist.all_reduce(numbers[name])


SUMS = exercise("(numbers)", named, of_own_numbers, are_doubled, Contract(changes=("numbers",)))


def test_ranks_that_go_through_a_set_each_in_its_own_order():
    says = rejection(SUMS, summed_as_a_set_goes)
    assert "See `for name in set(numbers):`: go by a list, a dict or sorted(...)" in says
    assert "These are not the sums" in says
    assert rejection(SUMS, summed_as_a_sorted_set_goes) == ""
    assert rejection(SUMS, summed_one_by_one) == ""


def one_text(rng: random.Random) -> list[Case]:
    return [Case(1, "a name and four servers", {"name": f"layer{rng.randrange(9)}"})]


def owned(answer, case: Case) -> int:
    return answer(case.data["name"], 10**6)


def is_a_server(case: Case, observation: Observation) -> Finding | None:
    return None if 0 <= observation.values[0] < 10**6 else Finding("there is no such server")


OWNER = exercise("(name, servers)", one_text, owned, is_a_server, Contract(allowed=frozenset()))


def test_a_hash_of_a_text_that_is_another_in_every_process():
    says = rejection(OWNER, lambda name, servers: hash(name) % servers)
    assert "In this run it is not, as on a cluster (PYTHONHASHSEED)" in says
    assert "The ranks get different results from the same arguments" in says
    assert rejection(OWNER, lambda name, servers: hash(len(name)) % servers) == ""
    assert rejection(OWNER, lambda name, servers: len(name) % servers) == ""


def test_every_law_says_what_it_demands():
    for law in all_laws():
        looks = law.watch or law.judge or law.variations
        assert looks
        module = __import__(looks.__module__, fromlist=["LAW"])
        assert module.LAW is law
        assert len(module.__doc__.split()) > 10
