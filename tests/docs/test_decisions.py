"""Each decision says in its title what was decided, has a status and a date, and is on the list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))
LINES_MAX = 60

_TITLE = re.compile(r"# (\d{4}) (\S.*)")
_STATUS = re.compile(r"\*\*Status\.\*\* Accepted 20\d\d-\d\d-\d\d(?:, superseded by \[(\d{4})\]\(\1-[\w-]+\.md\))?\.")


def _title(path: Path) -> str:
    found = _TITLE.fullmatch(path.read_text().partition("\n")[0])
    assert found is not None, f"{path.name} does not begin with '# NNNN Title'"
    assert found[1] == path.name[:4]
    return found[2]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.name[:4])
def test_a_decision_has_a_title_a_status_and_a_date(path: Path) -> None:
    """`**Status.** Accepted 2026-11-18.` is the third line, or `... , superseded by [0122](0122-...md).`"""
    assert _title(path)
    assert _STATUS.match(path.read_text().split("\n", 2)[2]), f"{path.name}: no status with a date in its third line"


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.name[:4])
def test_a_decision_fits_on_a_page(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX


def test_the_list_has_every_decision_under_its_title() -> None:
    """Once each, and says of a superseded one by what."""
    listed = re.findall(r"^\| \[(\d{4})\]\(([\w-]+\.md)\) \| (.*?)(?: \(superseded by \[\d{4}\].*\))? \|$",
                        (FOLDER / "README.md").read_text(), re.M)  # fmt: skip
    assert sorted(listed) == [(path.name[:4], path.name, _title(path)) for path in DECISIONS]


def test_numbers_are_used_once() -> None:
    numbers = [path.name[:4] for path in DECISIONS]
    assert sorted(set(numbers)) == numbers
