"""Ten thousand connections that are cut around commits: see `fleet.test_cut_connections`, which has three hundred."""

from __future__ import annotations

import time

import pytest

from chaos.failover.machines import Machines
from chaos.failover.nodes import Node, url
from fleet.cuts import cut_around_commits
from support.cutting import AFTER, BEFORE, CuttingProxy
from support.lives import run_async

pytestmark = pytest.mark.long

CUTS = 10_000


def test_ten_thousand_cuts_around_start_and_send(machines: Machines) -> None:
    """FAULTS B12, B13, C8: neither lost nor doubled."""
    node = Node(machines, "first").initialise()

    async def main() -> None:
        began = time.monotonic()
        with CuttingProxy(node.port, 0.2, seed=11, cuts_max=CUTS) as proxy:
            cut = await cut_around_commits(url(node.port), url(proxy.port), proxy, clients=4)
        print(
            f"\n{sum(proxy.cuts.values())} cuts ({proxy.cuts[BEFORE]} {BEFORE}, {proxy.cuts[AFTER]} {AFTER}) in "
            f"{time.monotonic() - began:.0f} s: {len(cut.sent)} starts and {sum(map(len, cut.sent.values()))} sends "
            f"acknowledged, {cut.starts_repeated} starts and {cut.sends_repeated} sends repeated by their callers; "
            "none lost, none doubled"
        )
        assert sum(proxy.cuts.values()) >= CUTS
        assert min(proxy.cuts[BEFORE], proxy.cuts[AFTER]) > CUTS / 4

    run_async(main(), patience=500)
