"""Colours that touch can be told apart by red- and green-blind eyes, and in grey print.

Simulated as Viénot, Brettel & Mollon do, "Digital video colourmaps for checking the legibility of
displays by dichromats", Color Research and Application 24(4), 1999: linear RGB to the responses of
the three cones, the missing one replaced by a mix of the others, and back. Distances are CIE 1976.
"""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from course_lib.views import palette

TO_CONES = np.array(
    [[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]]
)
MISSING = {
    "protanopia": np.array([[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]]),
    "deuteranopia": np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]]),
}
EYES = ["all cones", *MISSING]
PAGES = {"light": "#ffffff", "dark": "#111111"}
FILLS = {"OPERATIONS": palette.OPERATIONS, "MEMORY": palette.MEMORY, "STEP": palette.STEP}


def on(page: str, fill: palette.Fill) -> tuple[str, str]:
    """How a fill and what is written on it look on a page, as colours."""
    ink, paper = (_themed(name, page) for name in (fill.ink, fill.color))
    mixed = fill.strength * np.array(to_rgb(paper))
    mixed += (1 - fill.strength) * np.array(to_rgb(PAGES[page]))
    return to_hex(mixed), ink


def _themed(color: str, page: str) -> str:
    return getattr(palette.INKS[color], page) if color in palette.INKS else color


def contrast(one: str, other: str) -> float:
    """WCAG 2: from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def linear(color: str) -> np.ndarray:
    value = np.array(to_rgb(color))
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def seen(color: str, eyes: str) -> np.ndarray:
    """Linear RGB as `eyes` see it."""
    if eyes == "all cones":
        return linear(color)
    cones = MISSING[eyes] @ TO_CONES @ linear(color)
    return np.clip(np.linalg.solve(TO_CONES, cones), 0, 1)


def luminance(color: str) -> float:
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear(color))


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b*, white D65."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    ratio = to_xyz @ rgb / np.array([0.9505, 1.0, 1.089])
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(a: str, b: str, eyes: str) -> float:
    return float(np.linalg.norm(lab(seen(a, eyes)) - lab(seen(b, eyes))))


def lightness_apart(a: str, b: str) -> float:
    """In grey: difference of L*, of which 100 is black to white."""
    return abs(116 * np.cbrt(luminance(a)) - 116 * np.cbrt(luminance(b)))


def test_the_simulation_itself_knows_red_from_green_and_who_does_not():
    red, green = "#cc4400", "#708000"
    assert distance(red, green, "all cones") > 60
    assert distance(red, green, "deuteranopia") < 25
    assert np.allclose(seen("#808080", "protanopia"), linear("#808080"), atol=0.01)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("name", FILLS)
def test_fills_of_one_picture_differ_for_all_eyes(name, eyes, page):
    for (a, one), (b, other) in itertools.combinations(FILLS[name].items(), 2):
        apart = distance(on(page, one)[0], on(page, other)[0], eyes)
        assert apart > 12 or one.hatch != other.hatch, (a, b, apart)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("name", FILLS)
def test_neighbours_differ_in_grey(name, page):
    fills = FILLS[name].items()
    # Bars are stacked in one order; in a schedule anything follows anything, but not B and I
    pairs = itertools.combinations(fills, 2) if name == "OPERATIONS" else itertools.pairwise(fills)
    for (a, one), (b, other) in pairs:
        if {a, b} == {"B", "I"}:
            continue
        apart = lightness_apart(on(page, one)[0], on(page, other)[0])
        assert apart > 10 or one.hatch != other.hatch, (a, b, apart)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("eyes", EYES)
def test_chunks_of_a_rank_differ_for_all_eyes_and_forward_is_lighter_than_backward(eyes, page):
    chunks = {
        kind: [on(page, palette.operation(kind, k))[0] for k in range(4)] for kind in ("F", "B")
    }
    for kind, colors in chunks.items():
        for one, other in itertools.combinations(colors, 2):
            assert distance(one, other, eyes) > 12, (kind, one, other)
    assert min(map(luminance, chunks["F"])) > 2 * max(map(luminance, chunks["B"]))
    halves = [palette.operation("I", k).color for k in range(4)]
    assert len({*halves}) == 4


@pytest.mark.parametrize("page", PAGES)
def test_more_of_an_amount_stands_out_more_against_the_page(page):
    against = [contrast(on(page, palette.shade(k / 10))[0], PAGES[page]) for k in range(11)]
    assert against == sorted(against)
    assert against[0] < 1.5
    assert against[-1] > 7


@pytest.mark.parametrize("page", PAGES)
def test_what_does_nothing_is_the_quietest_on_either_page(page):
    quiet = contrast(on(page, palette.WAITS)[0], PAGES[page])
    assert 1.2 < quiet < 2
    loud = [*palette.OPERATIONS.values(), *palette.MEMORY.values(), palette.COLLECTIVE]
    if page == "dark":
        assert all(
            contrast(on(page, f)[0], PAGES[page]) > quiet for f in loud if f != palette.WAITS
        )
        assert contrast(on(page, palette.COLLECTIVE)[0], PAGES[page]) > 4


@pytest.mark.parametrize("eyes", EYES)
def test_neighbouring_ranks_differ_for_all_eyes_and_in_grey(eyes):
    for one, other in itertools.pairwise(palette.RANKS):
        assert distance(one.color, other.color, eyes) > 20
        assert lightness_apart(one.color, other.color) > 15


@pytest.mark.parametrize("eyes", EYES)
def test_bars_beside_one_another_differ_for_all_eyes_and_in_grey(eyes):
    for one, other in itertools.combinations(palette.SERIES, 2):
        assert distance(one.color, other.color, eyes) > 15
        grey = lightness_apart(one.color, other.color)
        assert grey > 10 or one.hatch != other.hatch


@pytest.mark.parametrize("eyes", EYES)
def test_lines_differ_by_dashes_and_by_colour(eyes):
    assert len({stroke.dashes for stroke in palette.STROKES}) == len(palette.STROKES)
    for (one, _), (other, _) in itertools.combinations(palette.STROKES, 2):
        assert distance(one, other, eyes) > 12


@pytest.mark.parametrize("page", PAGES)
def test_letters_can_be_read_on_every_fill(page):
    # WCAG 2: at least 3 to 1 for large text and graphics
    fills = [*palette.OPERATIONS.values(), *palette.MEMORY.values(), *palette.RANKS]
    fills += [*palette.STEP.values(), palette.WAITS, palette.QUIET]
    fills += [palette.operation(kind, k) for kind in palette.OPERATIONS for k in range(4)]
    fills += [palette.shade(k / 20) for k in range(21)]
    for fill in fills:
        assert contrast(*on(page, fill)) >= 3, fill


def test_what_is_the_same_has_one_stroke_in_every_picture():
    first = palette.strokes(["sequential", "eventual"])
    second = palette.strokes(["bound 8", "no bound", "bound 0"])
    assert first["sequential"] == second["bound 0"]
    assert first["eventual"] == second["no bound"]
    assert second["bound 8"] not in first.values()
