"""A source file that a test may replace between two lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from change.versions_of_a_file import SourceFile
from support.effects import Effects


@pytest.fixture
def source(tmp_path: Path, effects: Effects, request: pytest.FixtureRequest) -> SourceFile:
    # One name per test: the registry would take the same workflow name from two files for a clash.
    return SourceFile(tmp_path / "orders.py", effects)
