"""The store tests run on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from stores.store_kit import World
from support.lives import STORES


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path)
