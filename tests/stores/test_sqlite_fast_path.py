"""Plain turns go by the fast path, and a look that finds nothing due does not write (see `stores.fast_path`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.testing.store.checks import Check
from stores.fast_path import FAST_PATH
from stores.store_kit import World


@pytest.mark.parametrize("check", FAST_PATH, ids=lambda check: check.id)
def test_the_short_way_is_taken(check: Check, tmp_path: Path) -> None:
    """Otherwise every answer would be right, and none of them quick."""
    check(World("sqlite", tmp_path))
