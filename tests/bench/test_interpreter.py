"""Which Python the bench measures with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.interpreter import TRIES, candidates, quickest, trial_seconds

OWN, OTHER, THIRD = Path("own"), Path("other"), Path("third")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({OWN: 1.0, OTHER: 0.8}, OTHER),
        ({OWN: 1.0, OTHER: 0.95}, OWN),  # as likely a matter of the moment
        ({OWN: 1.0, OTHER: 1.2}, OWN),
        ({OWN: 1.0, OTHER: 0.8, THIRD: 0.7}, THIRD),
        ({OWN: 1.0, OTHER: float("inf")}, OWN),
        ({OWN: 1.0}, OWN),
    ],
)
def test_another_is_taken_only_if_it_is_clearly_quicker(seconds: dict[Path, float], expected: Path) -> None:
    assert quickest(list(seconds), seconds.__getitem__) == expected


def test_each_is_judged_by_its_best_moment() -> None:
    tries = {OWN: iter([1.0] * TRIES), OTHER: iter([3.0] * (TRIES - 1) + [0.5])}
    assert quickest([OWN, OTHER], lambda python: next(tries[python])) == OTHER


def test_interpreters_are_found_once_each_and_only_those_of_this_version(tmp_path: Path) -> None:
    name = f"python3.{sys.version_info.minor}"
    first, second, own = tmp_path / "first", tmp_path / "second", tmp_path / "own"
    for directory in (first, second):
        directory.mkdir()
    own.touch()
    (first / name).symlink_to(own)
    (second / name).touch()
    (second / "python3.1").touch()
    found = candidates(f"{first}:{second}:{second}:{tmp_path / 'missing'}", own)
    assert [path for path in found if path.is_relative_to(tmp_path)] == [own, second / name]


def test_what_cannot_run_is_never_the_quickest(tmp_path: Path) -> None:
    assert trial_seconds(tmp_path / "missing") == float("inf")
    assert trial_seconds(Path("/bin/true")) == float("inf")
    assert 0 < trial_seconds(Path(sys.executable)) < 30
