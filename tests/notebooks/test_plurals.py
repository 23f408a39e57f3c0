"""What lessons print has its plurals right."""

import re

import nbformat

_PLURAL = re.compile(
    r"(?<!rank )(?<!layer )(?<!stage )(?<!worker )(?<!server )"
    r"(?<![\d.,/=+\-] )(?<![\d.,/\-])\b1 "
    r"(?!(?:is|was|has|does|less|times)\b)[a-z]+s\b"
)


def printed(notebook) -> list[str]:
    outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    texts = [o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in outputs]
    return [*texts, *("\n".join(o.get("traceback", [])) for o in outputs)]


def test_one_thing_is_not_printed_as_several(root):
    """Not "1 pieces": `course_lib.text.counted`, or a sentence that needs no plural."""
    found = [
        f"{file.stem}: {match.group()}"
        for file in sorted((root / "solutions").glob("*.ipynb"))
        for text in printed(nbformat.read(file, as_version=4))
        for match in _PLURAL.finditer(text)
    ]
    assert found == []
