"""Fixtures for the tests of the CLI."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a store will be; nothing is there yet."""
    return tmp_path / "test.db"
