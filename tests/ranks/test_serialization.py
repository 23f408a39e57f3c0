"""What goes to the ranks and comes back, and what is said of that which cannot."""

import threading

import pytest
import torch

from course_lib.ranks import run_ranks, serialization, unsendable

LOCK = threading.Lock()


def uses_a_global():
    x = 1
    with LOCK:
        return x


class Box:
    def __init__(self, inside):
        self.inside = inside


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        (
            uses_a_global,
            (),
            rf"`LOCK` in line {uses_a_global.__code__.co_firstlineno + 2} is a lock",
        ),
        (lambda: uses_a_global(), (), r"`LOCK` in line \d+ is a lock"),
        (len, ([1, {"key": LOCK}],), r"the argument `1\[1\]\['key'\]` is a lock"),
        (len, (Box(iter([LOCK])),), r"the argument `1.inside` is a list_iterator"),
        (len, ((n for n in "ab"),), r"the argument `1` is a generator"),
    ],
)
def test_what_cannot_be_sent_is_named(function, arguments, said) -> None:
    with pytest.raises(ValueError, match=said):
        run_ranks(function, 1, *arguments)


def test_a_local_of_an_outer_function_is_named() -> None:
    lk = threading.RLock()

    def inner():
        return lk

    with pytest.raises(ValueError, match=r"inner uses .*: `lk` in line \d+ is a lock. Create it"):
        run_ranks(inner, 2)


def test_a_function_may_use_torch_ops() -> None:
    def adds():
        return torch.ops.aten.add(torch.ones(2), 1).tolist()

    assert run_ranks(adds, 1)[0] == [2.0, 2.0]


def test_large_variables_are_told_once_with_their_sizes(monkeypatch, capsys) -> None:
    monkeypatch.setattr(unsendable, "LARGE", 1_000_000)
    data, few = torch.zeros(500_000), torch.zeros(10)

    def use():
        return len(data) + len(few)

    for _ in range(2):
        run_ranks(use, 1)
    shown = capsys.readouterr().out
    assert shown.count("2 MB are sent to every rank: `data` in line") == 1
    assert "`few`" not in shown


ODD = {
    "one element of stride 0": lambda: torch.ones(1, 1).expand(1, 5)[:, :1],
    "no element, of stride 0": lambda: torch.ones(1).expand(3)[:0],
    "expanded": lambda: torch.ones(1).expand(4),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "compressed": lambda: torch.eye(3).to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "complex": lambda: torch.tensor([1 + 2j, 3j]),
    "conjugate": lambda: torch.tensor([1 + 2j, 3j]).conj(),
    "negative": lambda: torch.tensor([1 + 2j]).conj().imag,
    "bool": lambda: torch.tensor([True, False]),
    "float8": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "uint16": lambda: torch.ones(3).to(torch.uint16),
    "transposed": lambda: torch.arange(6.0).view(2, 3).t(),
    "empty": lambda: torch.empty(0, 3),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ODD)
def test_odd_tensors_arrive_equal_both_ways(name) -> None:
    tensor = ODD[name]()
    there = serialization.unpack(serialization.pack(tensor))
    back = serialization.unpack_result(serialization.pack_result(tensor))
    for arrived in (there, back):
        assert (arrived.dtype, arrived.layout, arrived.shape) == (
            tensor.dtype,
            tensor.layout,
            tensor.shape,
        )
        plain = [t.to_dense() if t.layout != torch.strided else t for t in (arrived, tensor)]
        if tensor.is_quantized:
            plain = [t.dequantize() for t in plain]
        assert torch.equal(*(t.to(torch.complex64) for t in plain))


def test_a_meta_tensor_comes_back_as_one() -> None:
    back = serialization.unpack_result(serialization.pack_result(torch.empty(3, 4, device="meta")))
    assert back.is_meta
    assert back.shape == (3, 4)


def test_views_of_one_tensor_come_back_as_tensors_of_their_own() -> None:
    a = torch.arange(4.0)
    whole, same, part = serialization.unpack_result(serialization.pack_result((a, a, a[1:])))
    assert whole is same
    part.zero_()
    assert whole.tolist() == [0, 1, 2, 3]
