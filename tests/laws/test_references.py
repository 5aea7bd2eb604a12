"""Every law, conformance row, fault and decision that is cited resolves to an anchor in the repository.

    law 6, laws 6 and 7         docs/reference/laws.md           <a id="law-6"></a>
    CONFORMANCE E1, E2          docs/reference/conformance.md    <a id="e1"></a>
    FAULTS A5, A9 to A12        docs/reference/faults.md         <a id="a5"></a>
    decision 0092               docs/decisions/0092-...md

Rows of the two tables share their letters, so an id without the name of its table is refused in docstrings and
comments.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
DECISIONS = ROOT / "docs" / "decisions"

_ROW = r"[A-Z]\d{1,2}"
_JOIN = r"(?:,\s+and\s+|,\s+|\s+and\s+|\s+to\s+|-)"
_ROWS = re.compile(rf"\b(CONFORMANCE|FAULTS)\s+({_ROW}(?:{_JOIN}{_ROW})*)")
_LAWS = re.compile(r"\b[Ll]aws?\s+(\d+(?:(?:,\s+and\s+|,\s+|\s+and\s+|\s+to\s+)\d+)*)")
_DECISIONS = re.compile(r"(?:[Dd]ecisions?\s+\[?|docs/decisions/|\(\[?|\.\./decisions/)(0\d{3})\b(?!-\d)")
#: Letters of the rows of both tables. `I` numbers the invariants of the simulator, in tests/sim/ledger.py.
_BARE = re.compile(r"(?<![\w`'\"/.#-])([A-FLOPRSTVW]\d{1,2})(?![\w`'\"/.-])")
#: Pages outside of the repository that were cited once.
_ELSEWHERE = re.compile(
    r"\b(DESIGN|STYLE|HOUSE)(?:\.md)?\b(?=[ :§.])|\b[Rr]ule \d+\b|\b(?:FAULTS|CONFORMANCE)(?:, rule| section)\b"
)
#: Found by `_BARE` and citing nothing: control characters, a Python file's level of optimisation.
NOT_ROWS = {"C0", "C1"}


class Citation(NamedTuple):
    path: str
    line: int
    text: str
    #: What it points to, or "" if nothing of that kind can be cited.
    anchor: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r} " + (
            f"has no anchor {self.anchor}" if self.anchor else "is unclear"
        )


@cache
def anchors() -> frozenset[str]:
    """`page#id` for the pages of laws and rows, and the numbers of decisions."""
    pages = {
        f"{name}.md#{found}"
        for name in ("laws", "conformance", "faults")
        for found in re.findall(r'<a id="([\w-]+)"></a>', (REFERENCE / f"{name}.md").read_text())
    }
    return frozenset(pages | {path.name[:4] for path in DECISIONS.glob("[0-9]*.md")})


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """What people read of a file, each piece with the line that it begins in."""
    source = path.read_text()
    if path.suffix != ".py":
        yield 1, source
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.lineno, first.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def citations(path: str, start: int, text: str, *, rows_need_names: bool) -> Iterator[Citation]:
    def cite(position: int, cited: str, anchor: str) -> Citation:
        return Citation(path, start + text.count("\n", 0, position), cited, anchor)

    for found in _ROWS.finditer(text):
        page = f"{found[1].lower()}.md"
        for row in re.findall(_ROW, found[2]):
            yield cite(found.start(), f"{found[1]} {row}", f"{page}#{row.lower()}")
    for found in _LAWS.finditer(text):
        for number in re.findall(r"\d+", found[1]):
            yield cite(found.start(), f"law {number}", f"laws.md#law-{number}")
    for found in _DECISIONS.finditer(text):
        yield cite(found.start(), f"decision {found[1]}", found[1])
    for found in _ELSEWHERE.finditer(text):
        yield cite(found.start(), found[0], "")
    if rows_need_names:
        rest = _ROWS.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
        for found in _BARE.finditer(rest):
            if found[1] not in NOT_ROWS:
                yield cite(found.start(), found[1], "")


def _files() -> list[Path]:
    found = [
        path
        for folder in ("src", "tests", "docs", "bench")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".sql"} and "frozen" not in path.parts and ".venvs" not in path.parts
    ]
    return sorted({*found, *ROOT.glob("*.md")} - {Path(__file__)})


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_citation_resolves(path: Path) -> None:
    """Cite a row that exists, with the name of its table, or say in words what is meant."""
    name = str(path.relative_to(ROOT))
    unresolved = [
        str(citation)
        for start, text in _texts(path)
        for citation in citations(name, start, text, rows_need_names=path.suffix == ".py")
        if citation.anchor not in anchors()
    ]
    assert not unresolved, "\n".join(unresolved)


def test_citations_are_read_as_people_write_them() -> None:
    text = "CONFORMANCE E1, FAULTS A5, A9 to A12 and laws 6 and 7; see\ndecision 0092 (0016). Also W2, DESIGN 6."
    found = list(citations("a.py", 10, text, rows_need_names=True))
    assert [(c.line, c.text) for c in found] == [
        (10, "CONFORMANCE E1"),
        (10, "FAULTS A5"),
        (10, "FAULTS A9"),
        (10, "FAULTS A12"),
        (10, "law 6"),
        (10, "law 7"),
        (11, "decision 0092"),
        (11, "decision 0016"),
        (11, "DESIGN"),
        (11, "W2"),
    ]
    assert [c.anchor for c in found[-2:]] == ["", ""]
    assert str(found[-1]) == "a.py:11: 'W2' is unclear"
