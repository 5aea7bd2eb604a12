"""The glossary points to modules that exist, and has the words that people search for."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "reference" / "glossary.md").read_text()

SEARCHED = ("GIL", "WAL", "fast path", "deadlock", "dead letter", "retry now", "backpressure", "preallocate",
            "group commit", "lease", "epoch", "fence", "frontier", "resident", "turn", "turn builder")  # fmt: skip


def test_every_module_named_exists() -> None:
    """As a path below `src/perdure`, or below the repository."""
    named = re.findall(r"`([\w/]+(?:\.py|/))`", TEXT)
    assert named
    missing = [name for name in named if not any((root / name).exists() for root in (ROOT / "src" / "perdure", ROOT))]
    assert missing == []


def test_the_words_that_people_search_for_are_entries() -> None:
    entries = {word.strip() for found in re.findall(r"</a>([^|]+) \|", TEXT) for word in found.split(",")}
    assert set(SEARCHED) - entries == set()
    assert len(re.findall(r'<a id="([\w-]+)">', TEXT)) == len(set(re.findall(r'<a id="([\w-]+)">', TEXT)))
