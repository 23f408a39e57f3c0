"""The ways to make a job fit: what each of them takes, and which is best where."""

from dataclasses import replace

import pytest

from course_lib.checks.exercises.nb07_less_memory import choose_savings
from course_lib.simulate.memory_choices import (
    JOBS,
    RECOMPUTE,
    Machine,
    Way,
    seconds,
    transformer_job,
    ways,
)
from course_lib.simulate.memory_formulas import model_state_bytes
from course_lib.simulate.offload import offload_optimizer
from course_lib.simulate.transformer import Transformer

MODEL = Transformer(6, 64, 4, seq=32, vocab=100)
FAST = Machine(1e9, 1e9, 1e30, 1e30, 1e30, 1e30)


def test_all_ways_are_there_once_and_offload_is_for_stages_2_and_3():
    found = ways(JOBS["13B, eight A100s"])
    assert len(set(found)) == len(found) == 18
    assert {way.zero for way in found if way.offload} == {2, 3}


def test_on_a_free_network_a_step_is_what_is_computed():
    job = transformer_job(MODEL, FAST, 4, 2)
    operations = 3 * 2 * (6 * (12 * 64**2 * 2 * 32 + 2 * 32 * 64 * 32 * 2))
    for way in ways(job):
        redone = {"none": 0, "full": 1 / 3, "selective": 4 * 64 * 32 * 64 * 6 / operations}
        assert seconds(job, way) == pytest.approx(operations / 1e9 * (1 + redone[way.recompute]))


def test_on_a_slow_network_a_step_is_its_passes():
    job = transformer_job(MODEL, replace(FAST, speed=1e30, network=1e3), 4, 2)
    one_pass = 2 * 6 * MODEL.dense_parameters * 3 / 4 / 1e3
    for way in ways(job):
        passes = 3 if way.zero == 3 else 2
        assert seconds(job, way) == pytest.approx(passes * one_pass), way


def test_an_offloaded_step_waits_for_the_bus_and_the_host():
    job = transformer_job(MODEL, replace(FAST, speed=1e30, bus=1e6, host_bandwidth=1e7), 4, 2)
    parameters = 6 * MODEL.dense_parameters
    bus = offload_optimizer(parameters, 4).bus_seconds(1e6)
    assert seconds(job, Way(2, True, "none")) == pytest.approx(bus + 28 * parameters / 4 / 1e7)
    shared = replace(job, on_host=4 * job.on_host)  # one host for all four
    assert seconds(shared, Way(2, True, "none")) == pytest.approx(bus + 28 * parameters / 1e7)


def test_stage_3_gathers_no_more_than_one_layer_ahead():
    """With a network as fast as the device each gather hides but the first of each pass."""
    job = transformer_job(MODEL, replace(FAST, network=1e30), 4, 2)
    job = replace(job, one_pass=job.forward)
    computed = 3 * job.layers * job.forward
    kept = seconds(job, Way(2, False, "none")) - computed
    again = seconds(job, Way(3, False, "none")) - computed
    assert kept == pytest.approx(2 * job.forward)  # the first gather and the last reduction
    assert again == pytest.approx(2 * job.forward)


def test_the_check_counts_the_bytes_of_the_papers():
    job = choose_savings._case("", JOBS["13B, eight A100s"]).data["job"]
    parameters = job["layers"] * job["parameters"]
    for zero in (0, 1, 2, 3):
        whole = 4 * job["parameters"] * max(0, zero - 1)
        states, _ = choose_savings._held(job, (zero, False, "none"))
        assert states == pytest.approx(model_state_bytes(parameters, 8, zero) + whole)
    states, activations = choose_savings._held(job, (2, True, "full"))
    assert states == pytest.approx(offload_optimizer(parameters, 8).device + 4 * job["parameters"])
    assert activations == 39 * job["activations"]["full"] + job["activations"]["none"]


@pytest.mark.parametrize(
    ("job", "best"),
    [
        ("1.5B, one card", Way(2, True, "selective")),
        ("7B, eight cards, Ethernet", Way(2, True, "selective")),
        ("7B, 64 A100s", Way(2, False, "none")),
        ("13B, eight A100s", Way(2, False, "selective")),
        ("13B, eight A100s, 40 GB", Way(3, False, "full")),
        ("13B, four A100s, a host each", Way(3, True, "selective")),
    ],
)
def test_what_is_best_for_each_job(job, best):
    case = choose_savings._case(job, JOBS[job])
    times = case.data["seconds"]
    assert min(choose_savings._DECISION.fitting(case), key=lambda way: times[way]) == best


def test_what_is_recomputed_has_all_three_ways():
    assert set(JOBS["7B, 64 A100s"].activations) == set(RECOMPUTE)
