"""One short seed of the fleet under fire, in the ordinary tests. `make chaos` has twenty long ones."""

from __future__ import annotations

from chaos.plan import draw
from chaos.world import live
from support.lives import run_async

SEED, SECONDS, RUNS = 5, 9.0, 120


def test_a_fleet_under_fire_loses_and_doubles_nothing() -> None:
    """FAULTS A21, B12, B13, B16, C3, C8: four worker processes are killed and stopped, the server is restarted and ends
    sessions, connections are cut around commits and fall silent; every run ends right, every step is recorded once, and
    no event is lost or doubled."""
    plan = draw(SEED, SECONDS, RUNS)
    verdict = run_async(live(plan, say=lambda line: None), patience=180)
    assert verdict.wrong == [], str(plan)
    assert verdict.figures["runs"] > RUNS // 2
    assert verdict.figures["steps recorded"] > RUNS
    assert verdict.figures["connections cut before a commit"] > 0
    assert verdict.figures["connections cut after a commit"] > 0
