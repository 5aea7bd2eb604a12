"""The page of faults, made from the catalogue and from the docstrings of the tests that inject them.

A test says which rows it covers: `\"\"\"FAULTS A5, A9 to A12: ...\"\"\"`. `python -m support.faults` (or `make faults`)
writes `docs/reference/faults.md`; `tests/docs/test_faults.py` fails when that is stale.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CATALOGUE = Path(__file__).with_name("fault_catalogue.txt")
PAGE = ROOT / "docs" / "reference" / "faults.md"

#: Where tests are, and how their functions are called there. The checks of the store suite are run by
#: tests/stores/test_suite.py, on every store.
PLACES = ((ROOT / "tests", "test_"), (ROOT / "src" / "perdure" / "testing" / "store", "check_"))

GROUPS = {
    "A": "A process dies",
    "B": "Storage fails",
    "C": "Many workers",
    "D": "Workflow code",
    "E": "Values",
    "F": "Bad input",
    "S": "Security",
    "O": "Operations",
}

_ID = r"[A-FSO]\d{1,2}"
_NAMED = re.compile(rf"FAULTS\s+({_ID}(?:(?:,\s+and\s+|,\s+|\s+and\s+|\s+to\s+|-){_ID})*)")


class Row(NamedTuple):
    id: str
    fault: str
    outcome: str
    why_not: str


def catalogue() -> list[Row]:
    lines = [line for line in CATALOGUE.read_text().splitlines() if line and not line.startswith("#")]
    return [Row(*[*line.split(" | "), ""][:4]) for line in lines]


def named_in(docstring: str) -> Iterator[str]:
    """The ids that a docstring claims to cover: single ones, lists and ranges."""
    for found in _NAMED.finditer(docstring):
        words = re.findall(rf"{_ID}|to|-", found[1])
        for position, word in enumerate(words):
            if word not in ("to", "-"):
                yield word
                continue
            first, last = words[position - 1], words[position + 1]
            yield from (f"{first[0]}{number}" for number in range(int(first[1:]) + 1, int(last[1:])))


class Cover(NamedTuple):
    file: str
    test: str


def coverage() -> Mapping[str, Sequence[Cover]]:
    """Which tests cover which row, in the order of files and lines."""
    found: dict[str, list[Cover]] = defaultdict(list)
    for folder, prefix in PLACES:
        for path in sorted(folder.rglob("*.py")):
            if "fixtures" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(prefix):
                    cover = Cover(str(path.relative_to(ROOT)), node.name)
                    for row in dict.fromkeys(named_in(ast.get_docstring(node) or "")):
                        found[row].append(cover)
    return found


def _covered_by(covers: Sequence[Cover]) -> str:
    first, others = covers[0], len(covers) - 1
    more = f" and {others} more" if others else ""
    return f"[{first.test}](../../{first.file}){more}"


def page() -> str:
    rows, covered = catalogue(), coverage()
    number = sum(row.id in covered for row in rows)
    lines = [
        "# Faults",
        "",
        "<!-- Made by `make faults` from tests/support/fault_catalogue.txt and the docstrings of the tests. -->",
        "",
        f"What can go wrong, what must happen then, and the test that makes it go wrong. {number} of {len(rows)} rows",
        "have one; the others say why not. Tests name the rows they cover in their docstrings, and make this page.",
    ]
    for letter, title in GROUPS.items():
        lines += ["", f"## {title}", "", "| | the fault | what must happen | shown by |", "|---|---|---|---|"]
        for row in rows:
            if row.id[0] == letter:
                shown = _covered_by(covered[row.id]) if row.id in covered else f"not here: {row.why_not}"
                lines.append(f'| <a id="{row.id.lower()}"></a>{row.id} | {row.fault} | {row.outcome} | {shown} |')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
