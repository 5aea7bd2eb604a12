"""Words that perdure used to have for itself are gone: what people search for is what they find.

Names are read word by word, so `DeadLetter` and `dead_letters` are dead letters, and `_let_loose` lets loose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: What is refused, as words in a row, and what to write instead.
BETTER = {
    "whoever": "the caller, the waiter, the sender, the worker that",
    "whomever": "the caller, the waiter, the sender",
    "twin": "accelerated implementation, or copy",
    "errand": "sweep request",
    "hurry": "retry now",
    "hurries": "retry now",
    "hurried": "retried now",
    "mend": "fix",
    "mended": "fixed",
    "mending": "fixing",
    "deaf": "unresponsive",
    "mood of": "load",
    "deed": "violation",
    "guilty": "forbidden",
    "innocent": "allowed, exempt",
    "bury": "dead-letter",
    "buries": "dead-letters",
    "buried": "dead-lettered",
    "letters": "dead letters",
    "chore": "idle task",
    "newcomer": "pending start",
    "let loose": "release",
    "turn away": "reject",
    "stand aside": "yield the GIL",
    "stands aside": "yields the GIL",
    "shorter way": "fast path",
    "untold": "needs notifying",
}

#: Names that were made of ordinary words.
BETTER_NAMES = {
    "is_plain": "awaits_one_step",
    "NothingLeft": "Deadlocked",
    "needs_interpreter": "probably_wants_gil",
    "INNOCENT": "EXEMPT_MODULES",
    "UNWATCHED": "NO_MONITOR",
    "_Fate": "_Settlement",
}

#: Where a word may stand, and why.
ALLOWED = {
    "hurry": {"src/perdure/*items.py": "how an item is stored"},
    "hurried": {
        "src/perdure/kernel/journal.py": "a kind of record, in every journal there is",
        "docs/reference/*.md": "the same",
        "tests/fixtures/*": "the same",
    },
    "letters": {
        "src/perdure/cli/dead_letters.py": "a key of the JSON that people's scripts read",
        "tests/cli/test_events.py": "the same",
        "src/perdure/cli/*": "of the alphabet",
        "src/perdure/testing/store/events.py": "a variable that holds dead letters",
        "tests/*": "of the alphabet, or a variable that holds dead letters",
    },
    "untold": {"src/perdure/kernel/*.py": "a field of stored frontiers"},
    "deaf": {"tests/sim/*": "a fault, in the plans of known worlds", "docs/reference/simulator.md": "the same"},
}

_NAME = re.compile(rf"(?<!\w)(?:{'|'.join(BETTER_NAMES)})(?!\w)")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\n")


def _files() -> list[Path]:
    found = [
        path
        for folder in ("src", "tests", "docs", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".sql", ".txt"} and not {"frozen", "perdure.egg-info"} & {*path.parts}
    ]
    return sorted({*found, *ROOT.glob("*.md"), ROOT / "Makefile"} - {Path(__file__)})


def _words(text: str) -> Iterator[tuple[int, str]]:
    line = 1
    for found in _WORD.finditer(text):
        if found[0] == "\n":
            line += 1
        else:
            yield line, found[0].lower()


def refused(text: str) -> Iterator[tuple[int, str]]:
    """Line and word of everything that has a better one."""
    before = ""
    for line, word in _words(text):
        single = word.removesuffix("s")
        for candidate in (word, single, f"{before} {word}"):
            if candidate in BETTER and not (word == "letters" and before == "dead"):
                yield line, candidate
                break
        before = word
    for found in _NAME.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[0]


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_plain_words(path: Path) -> None:
    """Each of these has a better one; `ALLOWED` says what may not be renamed."""
    name = str(path.relative_to(ROOT))
    found = [
        f"{name}:{line}: {word!r}, better: {(BETTER | BETTER_NAMES)[word]}"
        for line, word in refused(path.read_text())
        if not any(fnmatch(name, place) for place in ALLOWED.get(word, ()))
    ]
    assert not found, "\n".join(found)


def test_names_are_read_word_by_word() -> None:
    text = "class DeadLetter: ...\nbook.letters  # whoever\ndef _let_loose(twinned, HURRY): dead-letters\nthe Twins"
    assert list(refused(text)) == [(2, "letters"), (2, "whoever"), (3, "let loose"), (3, "hurry"), (4, "twin")]


@pytest.mark.parametrize("word", ["GIL", "fast path", "deadlock", "dead letter", "preallocate", "backpressure"])
def test_words_that_people_search_for_are_found(word: str) -> None:
    """In the glossary, and in the code that is about it."""
    assert word in (ROOT / "docs" / "reference" / "glossary.md").read_text()
