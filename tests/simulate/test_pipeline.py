"""Simulated schedules have the bubbles, memory and makespans that their papers publish."""

import random
from fractions import Fraction
from types import SimpleNamespace

import pytest

from course_lib.simulate.blocking_sends import Hang, simulate_blocking
from course_lib.simulate.pipeline import simulate
from course_lib.techniques.schedules import (
    Op,
    gpipe,
    interleaved,
    naive,
    needs,
    num_stages,
    one_f_one_b,
    parse_schedule,
    result_of,
    validate,
    zb_h1,
)

# ------------------------------------------------------------------------------------------------
# Formulas, for all sizes
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", range(1, 17))
def test_gpipe_and_1f1b_have_the_same_bubble_and_differ_in_what_they_hold(p):
    for m in range(1, 65):
        ours = simulate(gpipe(p, m))
        theirs = simulate(one_f_one_b(p, m))
        # Exact in whole numbers: (p-1)(t_f + t_b) idle on every rank of (m+p-1)(t_f + t_b)
        assert ours.makespan == theirs.makespan == 3 * (m + p - 1)
        assert ours.idle == theirs.idle == (3 * (p - 1),) * p
        assert ours.bubble_fraction == pytest.approx((p - 1) / (m + p - 1), abs=1e-15)
        assert ours.bubble_over_ideal == pytest.approx((p - 1) / m, abs=1e-15)
        assert ours.peak_in_flight == (m,) * p
        assert theirs.peak_in_flight == tuple(min(m, p - s) for s in range(p))


@pytest.mark.parametrize("p", [1, 2, 4, 7])
def test_naive_leaves_one_rank_working(p):
    assert simulate(naive(p)).bubble_fraction == pytest.approx((p - 1) / p)


def test_the_claim_that_1f1b_shortens_gpipe_is_wrong_at_8_stages_and_32_microbatches():
    # One step for F and one for B: 78 = 78, and a quarter of the live activations
    ours, theirs = (simulate(make(8, 32), backward=1) for make in (gpipe, one_f_one_b))
    assert ours.makespan == theirs.makespan == 78
    assert max(ours.peak_in_flight) == 4 * max(theirs.peak_in_flight) == 32


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 2), (4, 16, 4), (8, 24, 3), (4, 4, 5)])
def test_interleaving_divides_the_bubble_by_the_stages_of_a_rank(p, m, v):
    # Megatron-LM, SC 2021, section 2.2.2: (1/v)(p-1)/m of the ideal time
    t = simulate(interleaved(p, m, v), forward=Fraction(1, v), backward=Fraction(2, v))
    assert t.bubble_over_ideal == Fraction(p - 1, v * m)
    # Korthikanti et al. 2022, section 4.2.3: the first rank holds 1 + (p-1)/(p v) of a batch of p
    assert t.peak_held_by_rank()[0] == min(m * v, p * v * (1 + Fraction(p - 1, p * v)))


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 2), (2, 5), (4, 8), (8, 24)])
@pytest.mark.parametrize("times", [(1, 2, 1), (3, 5, 2), (7, 13, 6)])
def test_zb_h1_idles_and_holds_as_its_table_2_says(p, m, times):
    forward, backward, weight = times
    t = simulate(zb_h1(p, m), *times)
    inputs = backward - weight  # the paper's T_B
    assert t.makespan == m * (forward + backward) + (p - 1) * (forward + inputs - weight)
    # Worker i = s + 1 holds (p-i+1) M_B + (i-1) M_W
    assert t.peak_held(activation=34, weight=32) == tuple(34 * (p - s) + 32 * s for s in range(p))


def test_zb_h1_with_few_microbatches_is_the_formula_of_appendix_h():
    for p in range(1, 9):
        for m in range(1, p + 1):
            for forward, inputs, weight in ((1, 1, 1), (2, 3, 2), (5, 4, 4)):
                t = simulate(zb_h1(p, m), forward, inputs + weight, weight)
                assert t.makespan == (m + p - 1) * (forward + inputs) + weight


# ------------------------------------------------------------------------------------------------
# Zero Bubble, Table 9 (measured times in ms) -> Table 5 (bubble rates)
# ------------------------------------------------------------------------------------------------

MEASURED = [  # p, m, T_F, T_B, T_W, T_comm, chunks, 1F1B, 1F1B-I, ZB-H1, ZB-H2
    (8, 24, 18.522, 18.086, 9.337, 0.601, 3, 0.2431, 0.1055, 0.1585, 0.1083),
    (8, 32, 18.513, 18.086, 9.331, 0.626, 3, 0.1985, 0.0818, 0.1242, 0.0837),
    (8, 64, 18.546, 18.097, 9.321, 0.762, 3, 0.1240, 0.0443, 0.0674, 0.0444),
    (8, 24, 29.718, 29.444, 19.927, 0.527, 4, 0.2347, 0.0808, 0.1323, 0.0698),
    (8, 32, 29.802, 29.428, 19.530, 0.577, 4, 0.1898, 0.0628, 0.1045, 0.0559),
    (8, 64, 29.935, 29.621, 19.388, 0.535, 4, 0.1091, 0.0320, 0.0554, 0.0294),
]
ROWS = [
    pytest.param(
        SimpleNamespace(
            p=row[0], m=row[1], f=row[2], b=row[3], w=row[4], comm=row[5], v=row[6],
            one_f_one_b=row[7], interleaved=row[8], zb_h1=row[9], zb_h2=row[10],
        ),
        id=f"T_F={row[2]}-m={row[1]}",
    )
    for row in MEASURED
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_zero_bubble_table_5_follows_from_table_9(row):
    times = row.f, row.b + row.w, row.w, row.comm
    plain = simulate(one_f_one_b(row.p, row.m), *times)
    assert round(plain.bubble_fraction, 4) == row.one_f_one_b
    assert round(simulate(zb_h1(row.p, row.m), *times).bubble_fraction, 4) == row.zb_h1
    # Megatron's order pays 2(pv-1) messages; the paper's own rate is up to 0.0035 lower
    part = [time / row.v for time in times[:3]]
    chunked = simulate(interleaved(row.p, row.m, row.v), *part, row.comm)
    assert chunked.bubble_fraction == pytest.approx(row.interleaved, abs=0.004)
    work = row.m * (row.f + row.b + row.w)
    bubble = (row.p - 1) * (row.f + row.b + row.w) / row.v + 2 * (row.p * row.v - 1) * row.comm
    assert chunked.makespan - work == pytest.approx(bubble)


@pytest.mark.parametrize("row", ROWS)
def test_the_formula_for_zb_h2_gives_its_rate_too(row):
    # Table 2 with the round trip of a message; a schedule the course does not build
    bubble = (row.p - 1) * (row.f + row.b - 2 * row.w + 2 * row.comm)
    rate = bubble / (bubble + row.m * (row.f + row.b + row.w))
    assert round(rate, 4) == row.zb_h2


def test_without_the_messages_the_rates_of_table_5_are_missed():
    row = ROWS[0].values[0]
    t = simulate(one_f_one_b(row.p, row.m), row.f, row.b + row.w)
    assert round(t.bubble_fraction, 4) == 0.2258


# ------------------------------------------------------------------------------------------------
# The engine against a plain reference; unequal stages
# ------------------------------------------------------------------------------------------------


def reference_ends(schedule, seconds, send):
    """Ends by relaxation: repeat until nothing moves. Slow, and nothing like the engine."""
    stages = num_stages(schedule)
    home = {op.stage: rank for rank, row in enumerate(schedule) for op in row}
    ends = {}
    while True:
        before = dict(ends)
        for rank, row in enumerate(schedule):
            now = 0
            for op in row:
                for need in needs(op, stages):
                    lag = send if home[need.stage] != rank else 0
                    now = max(now, ends.get(need, 0) + lag)
                now += seconds[op.kind][op.stage]
                ends[result_of(op)] = now
        if ends == before:
            return ends


@pytest.mark.parametrize(
    "schedule",
    [gpipe(3, 4), one_f_one_b(4, 6), one_f_one_b(4, 2), zb_h1(4, 6), interleaved(2, 4, 3)],
)
def test_every_end_is_what_a_plain_reference_says(schedule):
    stages = num_stages(schedule)
    forward = [1 + s % 3 for s in range(stages)]
    backward = [2 + (s * s) % 5 for s in range(stages)]
    weight = [1 + s % 2 for s in range(stages)]
    seconds = {
        "F": forward,
        "B": backward,
        "I": [b - w for b, w in zip(backward, weight, strict=True)],
        "W": weight,
    }
    t = simulate(schedule, forward, backward, weight, send=2)
    ends = {result_of(span.what): span.end for span in t.spans}
    assert ends == reference_ends(schedule, seconds, 2)


def test_costs_by_stage_may_be_any_iterable():
    ours = simulate(one_f_one_b(3, 4), forward=(s + 1 for s in range(3)))
    assert ours.spans == simulate(one_f_one_b(3, 4), forward=[1, 2, 3]).spans


def test_one_slow_stage_sets_the_pace():
    m = 10
    t = simulate(one_f_one_b(4, m), forward=[1, 1, 3, 1], backward=[2, 2, 6, 2])
    assert t.busy == (3 * m, 3 * m, 9 * m, 3 * m)
    assert t.makespan == 9 * m + 2 * 3  # its work, and the way there and back; stage 3 is hidden
    assert t.bubble_fraction == pytest.approx(1 - 18 * m / (4 * t.makespan))


def test_a_v_shaped_placement_is_simulated_like_any_other():
    # Rank 0 holds the first and the last stage, so nothing is sent between stages 1 and 2
    table = parse_schedule("F0.0 F3.0 B3.0 B0.0\nF1.0 F2.0 B2.0 B1.0")
    assert simulate(table, 1, 1, send=10).makespan == 8 + 4 * 10
    assert simulate(table, 1, 1).peak_in_flight == (1, 1, 1, 1)


def test_whole_halves_stay_whole_and_odd_ones_do_not():
    assert simulate(zb_h1(1, 1), 1, 2).makespan == 3
    assert isinstance(simulate(zb_h1(1, 1), 1, 2).makespan, int)
    assert [s.end - s.start for s in simulate(zb_h1(1, 1), 1, 3).spans] == [1, 1.5, 1.5]


# ------------------------------------------------------------------------------------------------
# Blocking sends
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "m"), [(1, 4), (2, 3), (3, 5), (4, 2), (4, 8)])
def test_gpipe_survives_blocking_sends_and_takes_no_longer_when_they_are_free(p, m):
    blocked = simulate_blocking(gpipe(p, m))
    assert blocked.makespan == simulate(gpipe(p, m)).makespan
    assert blocked.busy == simulate(gpipe(p, m)).busy


def test_blocking_sends_take_their_senders_time():
    t = simulate_blocking(gpipe(2, 2), forward=1, backward=2, send=1)
    assert t.text().splitlines() == [
        "rank 0 | F0 .  F1 .  .  .  .  .  B0 -- .  B1 --",
        "rank 1 | .  .  F0 .  F1 B0 -- .  B1 -- .  .  .",
    ]
    sends = [span for span in t.spans if span.what == "send F0.0"]
    receives = [span for span in t.spans if span.what == "receive F0.0"]
    assert (sends[0].start, sends[0].end) == (1, 2)
    assert (receives[0].start, receives[0].end) == (0, 2)  # the wait is part of it


@pytest.mark.parametrize("make", [one_f_one_b, zb_h1])
def test_1f1b_hangs_with_blocking_sends_though_its_order_is_right(make):
    assert simulate(make(4, 8)).makespan
    with pytest.raises(Hang) as hang:
        simulate_blocking(make(4, 8))
    assert hang.value.stages == (0, 1, 2, 3)
    report = str(hang.value)
    assert "stage 0 (rank 0, after F0.3) sends the activation of microbatch 3 to stage 1" in report
    assert "stage 3 (rank 3, after " in report
    assert "sends the gradient of microbatch 0 to stage 2" in report


def test_a_stage_that_waits_for_a_stuck_one_is_named_with_what_it_waits_for():
    with pytest.raises(Hang) as hang:
        simulate_blocking(parse_schedule("F0 F1 B0 B1\nF0 F1 B0 B1\nF0 B0 F1 B1"))
    assert hang.value.stages == (0, 1, 2)
    assert str(hang.value).splitlines()[1:] == [
        "  stage 0 (rank 0, after F0.1) waits for the gradient of microbatch 0 from stage 1",
        "  stage 1 (rank 1, after F1.1) sends the activation of microbatch 1 to stage 2",
        "  stage 2 (rank 2, after B2.0) sends the gradient of microbatch 0 to stage 1",
    ]


def test_without_neighbours_nothing_is_sent():
    assert simulate_blocking(interleaved(1, 3, 2), send=5).makespan == 18


# ------------------------------------------------------------------------------------------------
# Bad input
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [simulate, simulate_blocking])
@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ({"forward": -1}, "forward = -1 of stage 0"),
        ({"backward": [2, 2, -3]}, "backward = -3 of stage 2"),
        ({"forward": [1, 1]}, "forward has 2 costs for 3 stages"),
        ({"backward": 2, "weight": 3}, "weight = 3 of stage 0 is more than its backward = 2"),
        ({"send": -0.5}, "send = -0.5"),
        ({"forward": float("nan")}, "forward = nan"),
        ({"send": float("inf")}, "send = inf"),
    ],
)
def test_costs_that_are_no_times_are_refused(run, costs, said):
    with pytest.raises(ValueError, match=said):
        run(one_f_one_b(3, 4), **costs)


@pytest.mark.parametrize("run", [simulate, simulate_blocking])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("F0 F1 B0 B1\nF0 B0 B1", "rank 1.*stage 1 never runs F of microbatch 1"),
        ("F0 F0 B0\nF0 B0", "rank 0, position 1 .*twice"),
        ("B0 F0\nF0 B0", "rank 0, position 0 .*it needs F0.0"),
        ("F0 W0 I0\nF0 B0", "rank 0, position 1 .*it needs I0.0"),
        ("F0 B0 F1 B1\nF0 F1 B0 B1", "wait in a circle"),
    ],
)
def test_schedules_that_cannot_run_are_refused_and_shown(run, text, said):
    with pytest.raises(ValueError, match=said):
        run(parse_schedule(text))


@pytest.mark.parametrize("seed", range(40))
def test_simulating_finds_wrong_exactly_what_validating_does(seed):
    # Swap, drop, double or change an operation: both must agree whether the rest can still run
    dice = random.Random(seed)
    make = dice.choice([gpipe, one_f_one_b, zb_h1])
    rows = [list(row) for row in make(dice.randint(1, 4), dice.randint(1, 4))]
    row = dice.choice(rows)
    a, b = dice.randrange(len(row)), dice.randrange(len(row))
    change = dice.choice(["swap", "drop", "double", "kind"])
    if change == "swap":
        row[a], row[b] = row[b], row[a]
    elif change == "drop":
        del row[a]
    elif change == "double":
        row.insert(b, row[a])
    else:
        row[a] = row[a]._replace(kind=dice.choice("FBIW"))
    messages = []
    for judge in (validate, simulate, lambda table: simulate(table, 0, 0)):
        try:
            judge(rows)
            messages.append(None)
        except ValueError as error:
            messages.append(str(error))
    assert messages[0] == messages[1] == messages[2]
    assert messages[0] or change in ("swap", "kind")


def test_a_zero_cost_does_not_hide_a_wrong_order():
    with pytest.raises(ValueError, match=r"it needs F0\.0"):
        simulate(((Op("B", 0, 0), Op("F", 0, 0)),), forward=0, backward=0)
