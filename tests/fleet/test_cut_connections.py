"""Connections that are cut around commits: `start` and `send` neither lose nor double anything."""

from __future__ import annotations

from urllib.parse import urlsplit

from fleet.cuts import cut_around_commits
from support.cutting import AFTER, BEFORE, CuttingProxy
from support.lives import run_async
from support.postgres import server

CUTS = 300


def test_three_hundred_cuts_around_start_and_send() -> None:
    """FAULTS B12, B13, C8: before a commit reaches the server, and after it was carried out there. Ten thousand of them
    are in tests/chaos/failover/test_cuts.py."""
    url = server().url(server().fresh_schema())
    port = urlsplit(url).port
    assert port is not None

    async def main() -> None:
        with CuttingProxy(port, 0.15, seed=7, cuts_max=CUTS) as proxy:
            cut = await cut_around_commits(url, url.replace(f":{port}/", f":{proxy.port}/"), proxy, clients=3)
        assert min(proxy.cuts[BEFORE], proxy.cuts[AFTER]) > CUTS / 4
        assert cut.starts_repeated > 0, "no caller ever heard of a cut: the test shows nothing"
        assert cut.sends_repeated > 0

    run_async(main(), patience=60)
