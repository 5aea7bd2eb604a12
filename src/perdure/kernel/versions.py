"""Versions of workflows, and which of two is newer.

A version is a short text that the user chooses. It is compared as Python compares the versions of packages (PEP 440:
`1.10` after `1.9`, `2.0rc1` before `2.0`, `2.0.post1` after it, `v2` like `2`); what that does not explain comes in
natural order after the release it begins with (`2-hotfix` after `2` and before `3`, `2026-10-01` after `2026-9-30`).
Comparing them as text chooses v9 before v10, and the release candidate before the release
(tests/authoring/test_versions.py).
"""

from __future__ import annotations

import functools
import re
from typing import Any

_BEGINNING = r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)(?P<rest>.*)"
#: What may follow the numbers of a release by PEP 440, but for the bare `-1`, which is as likely to be part of a date.
_SUFFIX = (
    r"(?:[-_.]?(?P<pre>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<pre_number>\d*))?"
    r"(?P<post>[-_.]?(?:post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"(?P<dev>[-_.]?dev[-_.]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?"
)
_PHASES = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
#: A release without a phase comes after all of its phases; one that is only in development before them.
_RELEASED, _UNBORN = 3, -1

Order = tuple[Any, ...]


@functools.lru_cache(maxsize=1024)
def version_order(version: str) -> Order:
    """What a version is sorted by. Equal for `2` and `2.0`."""
    text = version.strip().lower()
    found = re.fullmatch(_BEGINNING, text, re.DOTALL)
    if found is None:
        return (-1, (), _natural(text))
    release = tuple(map(_number, found["release"].split(".")))
    while release and release[-1] == 0:
        release = release[:-1]
    return (_number(found["epoch"]), release, _rest(found["rest"]))


def _rest(rest: str) -> Order:
    found = re.fullmatch(_SUFFIX, rest)
    if found is None:
        return (1, _natural(rest))
    phase = _PHASES[found["pre"]] if found["pre"] else _RELEASED
    if phase == _RELEASED and found["post"] is None and found["dev"] is not None:
        phase = _UNBORN
    return (
        0,
        phase,
        _number(found["pre_number"]),
        _number(found["post_number"]) if found["post"] is not None else -1,
        (0, _number(found["dev_number"])) if found["dev"] is not None else (1, 0),
        _natural(found["local"] or ""),
    )


def _natural(text: str) -> Order:
    """Runs of digits by their value, after words; everything else only separates."""
    parts = re.findall(r"\d+|[^\W\d]+", text)
    return tuple((1, _number(part), "") if part.isdecimal() else (0, 0, part) for part in parts)


def _number(digits: str | None) -> int:
    return int(digits) if digits else 0


def newest(versions: list[str]) -> str:
    """The newest of several. Where two are equal in order (`2` and `2.0`), the longer text, so that all processes
    choose the same."""
    return max(versions, key=lambda version: (version_order(version), len(version), version))


class Version(str):
    """A version as workflow code sees it: a text that is compared as a version.

    `version() >= "2.10"` is true for 2.10 and 3, not for 2.9. Equality is that of the text: `"2"` is not `"2.0"`.
    """

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return version_order(str(self)) < version_order(str(other)) if isinstance(other, str) else NotImplemented

    def __le__(self, other: str) -> bool:
        return version_order(str(self)) <= version_order(str(other)) if isinstance(other, str) else NotImplemented

    def __gt__(self, other: str) -> bool:
        return version_order(str(self)) > version_order(str(other)) if isinstance(other, str) else NotImplemented

    def __ge__(self, other: str) -> bool:
        return version_order(str(self)) >= version_order(str(other)) if isinstance(other, str) else NotImplemented
