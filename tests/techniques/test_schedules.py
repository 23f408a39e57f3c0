"""Schedules are the published ones, can run, and bad ones are shown where they are bad."""

import pytest

from course_lib.techniques.schedules import (
    Op,
    format_schedule,
    gpipe,
    interleaved,
    naive,
    needs,
    num_microbatches,
    num_stages,
    one_f_one_b,
    parse_op,
    parse_schedule,
    result_of,
    validate,
    zb_h1,
)

SIZES = [(p, m) for p in (1, 2, 3, 4, 5, 8) for m in (1, 2, 3, 4, 7, 8, 16)]


def written(text):
    return parse_schedule("\n".join(line.strip() for line in text.strip().splitlines()))


def play(schedule):
    """An independent run: in each round every rank does one operation, if its needs are met."""
    stages, done = num_stages(schedule), set()
    rows = [list(row) for row in schedule]
    while any(rows):
        able = [row for row in rows if row and all(n in done for n in needs(row[0], stages))]
        assert able, "no rank can go on"
        done |= {result_of(row.pop(0)) for row in able}
    return done


# ------------------------------------------------------------------------------------------------
# The published tables
# ------------------------------------------------------------------------------------------------


def test_naive_is_one_batch_through_every_stage():
    assert naive(3) == written("F0 B0\nF0 B0\nF0 B0")


def test_gpipe_is_all_forwards_then_all_backwards():
    assert gpipe(2, 3) == written("F0 F1 F2 B0 B1 B2\nF0 F1 F2 B0 B1 B2")


def test_1f1b_is_the_figure_of_megatron_lm():
    # SC 2021, Figure 3: 4 stages, 8 microbatches; warm-up of 3, 2, 1 and 0 forwards
    assert one_f_one_b(4, 8) == written(
        """
        F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7
        F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7
        F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7
        F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7
        """
    )


def test_1f1b_with_fewer_microbatches_than_stages_warms_up_with_what_there_is():
    assert one_f_one_b(4, 2) == written("F0 F1 B0 B1\nF0 F1 B0 B1\nF0 F1 B0 B1\nF0 B0 F1 B1")


def test_interleaved_goes_through_a_group_before_the_next_stage():
    # Megatron-LM, SC 2021, Figure 4: microbatches in groups of p, stage r + c p is chunk c
    assert interleaved(2, 4, 2) == written(
        """
        F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3
        F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 B3.2 F3.3 B3.3 B1.2 B1.3
        """
    )


def test_zb_h1_puts_off_as_many_weight_passes_as_the_stage_has_before_it():
    assert zb_h1(3, 4) == written(
        """
        F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3
        F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
        F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
        """
    )


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_every_schedule_of_every_size_is_valid_and_runs(p, m):
    tables = [naive(p), gpipe(p, m), one_f_one_b(p, m), zb_h1(p, m)]
    tables += [interleaved(p, m, v) for v in (1, 2, 3) if m % min(p, m) == 0]
    for table in tables:
        validate(table)
        halves = 3 if any(op.kind == "W" for row in table for op in row) else 2
        assert sum(map(len, table)) == num_stages(table) * num_microbatches(table) * halves
        assert len(play(table)) == sum(map(len, table))


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_gradients_are_summed_in_one_order_by_all_schedules(p, m):
    for table in (gpipe(p, m), one_f_one_b(p, m), zb_h1(p, m)):
        for stage, row in enumerate(table):
            last = "W" if any(op.kind == "W" for op in row) else "B"
            assert [op for op in row if op.kind == last] == [Op(last, stage, i) for i in range(m)]


def test_interleaving_one_stage_a_rank_is_1f1b_with_a_longer_warm_up():
    # Megatron warms up 2(p-r-1) forwards when it interleaves; nothing else differs
    assert interleaved(1, 4, 1) == one_f_one_b(1, 4)
    assert interleaved(2, 4, 1)[1] == one_f_one_b(2, 4)[1]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: gpipe(0, 4), "p = 0 ranks and m = 4"),
        (lambda: one_f_one_b(2, 0), "p = 2 ranks and m = 0"),
        (lambda: interleaved(4, 6, 2), "m = 6 .* p = 4"),
        (lambda: interleaved(4, 8, 0), "v = 0"),
        (lambda: naive(-1), "p = -1"),
    ],
)
def test_sizes_that_make_no_schedule_are_refused_with_both_numbers(make, said):
    with pytest.raises(ValueError, match=said):
        make()


# ------------------------------------------------------------------------------------------------
# Text
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [naive(1), gpipe(12, 11), interleaved(2, 4, 2), zb_h1(3, 5)])
def test_text_reads_back(table):
    assert parse_schedule(format_schedule(table)) == table
    long = "\n".join(" ".join(map(str, row)) for row in table)
    assert parse_schedule(long) == table


def test_an_operation_is_written_as_its_span_is_named():
    assert str(Op("F", 0, 3)) == "F0.3"
    assert parse_op("W11.20") == Op("W", 11, 20)
    assert parse_op("I2", stage=5) == Op("I", 5, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("F0 G1", "rank 0: 'G1' is not an operation"),
        ("F0 B0\nF0 B-1", "rank 1: 'B-1'"),
        ("rank 1 | F0 B0", "says rank 1; rank 0 is due"),
    ],
)
def test_text_that_is_no_schedule_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        parse_schedule(text)


def test_an_operation_without_a_stage_is_refused():
    with pytest.raises(ValueError, match="names no stage"):
        parse_op("F3")


# ------------------------------------------------------------------------------------------------
# Schedules that are wrong
# ------------------------------------------------------------------------------------------------

WRONG = {
    "F0 F1 B0 B1\nF0 B0 B1": "rank 1, after its last .*stage 1 never runs F of microbatch 1",
    "F0 F1 B0\nF0 B0 F1 B1": "rank 0, after its last .*stage 0 never runs B or I of microbatch 1",
    "F0 F0 B0\nF0 B0": r"rank 0, position 1 \(stage 0, microbatch 0\): .*F of microbatch 0 twice",
    "F0 I0 W0\nF0 I0": "stage 1 never runs B or W of microbatch 0",
    "F0 I0 B0 W0\nF0 B0": r"rank 0, position 2 \(stage 0, microbatch 0\): .*B or I .* twice",
    "B0 F0\nF0 B0": r"rank 0, position 0 .*it needs F0.0, which comes after it, at position 1",
    "F0 F1 B0 B1\nF0 B1 F1 B0\nF0 F1 B0 B1": (
        r"rank 1, position 1 .*it needs F1.1, which comes after it, at position 2"
    ),
    "F0 W0 I0\nF0 B0": "it needs I0.0, which comes after it, at position 2",
    "F1 F0 B0 B1\nF0 B0 F1 B1\n": None,  # another order of forwards is fine
    "F0 B0 F1 B1\nF0 F1 B0 B1": (
        r"wait in a circle: rank 0 at position 1 \(B0.0\) waits for B1.0; "
        r"rank 1 at position 1 \(F1.1\) waits for F0.1"
    ),
    "F0.0 B0.0\nF0.0 B0.0": r"rank 1, position 0 \(stage 0, .*: stage 0 is on rank 0 too",
    "F0.0 B0.0\nF2.0 B2.0": "no rank holds stage 1 of 3",
    "F0 B0\nrank 1 |": "rank 1 of 2 has nothing to do",
}


@pytest.mark.parametrize(("text", "said"), WRONG.items())
def test_a_wrong_schedule_is_shown_where_it_is_wrong(text, said):
    table = parse_schedule(text)
    if said is None:
        validate(table)
        return
    with pytest.raises(ValueError, match=said):
        validate(table)


@pytest.mark.parametrize(
    ("op", "said"), [(Op("X", 0, 0), "kind 'X'"), (Op("F", 0, -1), "microbatch -1 must count")]
)
def test_a_wrong_entry_is_named(op, said):
    with pytest.raises(ValueError, match=f"rank 0, position 1 .*{said}"):
        validate(((Op("F", 0, 0), op),))


def test_an_entry_that_is_no_operation_is_shown():
    with pytest.raises(ValueError, match=r"rank 1, position 1 holds \('B', 1, 0\), where an Op"):
        validate(((Op("F", 0, 0), Op("B", 0, 0)), (Op("F", 1, 0), ("B", 1, 0))))


def test_an_empty_schedule_is_refused():
    with pytest.raises(ValueError, match="no ranks"):
        validate(())


def test_a_microbatch_missing_everywhere_is_found_when_their_number_is_known():
    validate(gpipe(2, 3))
    with pytest.raises(ValueError, match="stage 0 never runs F of microbatch 3"):
        validate(gpipe(2, 3), microbatches=4)
    with pytest.raises(ValueError, match="no microbatch 2; 2 count from 0"):
        validate(gpipe(2, 3), microbatches=2)


def test_the_place_is_marked_in_the_grid():
    table = parse_schedule("F0 F1 F2 B0 B1 B2\nF0 B0 F1 F1 F2 B2")
    with pytest.raises(ValueError, match="twice") as error:
        validate(table)
    _, *grid = str(error.value).splitlines()
    assert grid == [
        "rank 0 | F0 F1 F2 B0 B1 B2",
        "rank 1 | F0 B0 F1 F1 F2 B2",
        "                  ^^ here",
    ]


def test_a_long_schedule_is_shown_around_the_place():
    rows = [list(row) for row in one_f_one_b(2, 1000)]
    rows[1][1001] = rows[1][999]
    with pytest.raises(ValueError, match=r"stage 1, microbatch 499\): .* twice") as error:
        validate(rows)
    assert max(map(len, str(error.value).splitlines())) < 120
    mark = next(line for line in str(error.value).splitlines() if line.endswith("here"))
    assert str(error.value).splitlines()[-2][mark.index("^") :].startswith("B499")
