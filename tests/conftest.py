"""Fixtures for the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.effects import Effects
from support.lives import Lives


@pytest.fixture(params=["memory", "sqlite"])
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Lives:
    """A store's data with engines on it, on every store."""
    return Lives(request.param, tmp_path)


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    return Effects(tmp_path / "effects.txt")
