"""Servers that are lost while workers work: minutes, and servers of Debian's. `make chaos-failover`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.failover.machines import Machines
from support.lives import STORES

collect_ignore_glob = [] if "postgres" in STORES else ["test_*.py"]


@pytest.fixture
def machines() -> Iterator[Machines]:
    with Machines() as own:
        yield own
