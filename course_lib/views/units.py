"""Numbers as people read them."""

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def size_text(nbytes: float) -> str:
    """1500000 -> '1.5 MB'; decimal units, as memory and network cards are sold by."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes:.3g} B"


def time_text(seconds: float) -> str:
    """0.0021 -> '2.1 ms'."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def count_text(number: float) -> str:
    """174600000000 -> '175B'; parameters as papers write them."""
    for unit, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= factor:
            return f"{number / factor:.3g}{unit}"
    return f"{number:.3g}"


def power_of_2(exponent: float) -> str:
    """-14 -> '2⁻¹⁴'."""
    return "2" + f"{exponent:.0f}".translate(_RAISED)
