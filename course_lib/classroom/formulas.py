"""Formulas in a lesson's Markdown, and the punctuation that must not be left behind by them.

A browser takes a formula for a box, and may break the line between it and the comma that follows. A
comma within the formula stays, wherever formulas are drawn; so that is where the build puts it.
"""

import re

FORMULA = re.compile(r"(```.*?```|`[^`\n]*`)|\$\$(.+?)\$\$|\$((?:[^$\n]|\n(?!\n))+?)\$", re.DOTALL)
"""Code, in which a dollar is a dollar; a formula of its own; a formula in a line."""
_FOLLOWED = re.compile(FORMULA.pattern + r"([.,;)?]+)?", re.DOTALL)


def with_punctuation(markdown: str) -> str:
    """The text with each formula in a line taking in the punctuation that follows it.

    "`$n$`, then" becomes "`$n,$` then". Colons stay outside: in a formula they mean a ratio.
    """
    return _FOLLOWED.sub(_joined, markdown)


def without_punctuation(formula: str) -> tuple[str, str]:
    """A formula in a line, and what `with_punctuation` has put into it: `n.` gives `n` and `.`."""
    end = len(formula)
    while end > 1 and formula[end - 1] in ".,;)?":
        if formula[end - 1] == ")" and formula.count("(", 0, end) >= formula.count(")", 0, end):
            break
        end -= 1
    return formula[:end], formula[end:]


def _joined(found: re.Match[str]) -> str:
    *_, formula, punctuation = found.groups()
    return f"${formula}{punctuation}$" if formula and punctuation else found[0]
