"""Whether a mutation is caught: by simulated worlds, or by a test in a process of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from mutations.mutations import Mutation, applied
from sim.world import simulate

ROOT = Path(__file__).parents[2]


def seeds_needed(mutation: Mutation, seeds_max: int) -> tuple[int, str] | None:
    """The seed that showed it, and what was violated; None if none did."""
    with applied(mutation):
        for seed in range(mutation.first, mutation.first + seeds_max):
            problem = simulate(seed, None, mutation.setting).problem
            if problem:
                return seed, problem.partition("\n")[0]
    return None


def test_fails(mutation: Mutation) -> bool:
    """Run the test that is to catch it, with the bug in."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PERDURE_MUTATION": mutation.name}
    command = [
        sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "mutations.plugin",
        *shlex.split(mutation.caught_by),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode not in (0, 1):
        raise AssertionError(f"{mutation.caught_by} could not be run: {done.stdout[-800:]} {done.stderr[-800:]}")
    return done.returncode == 1


test_fails.__test__ = False  # type: ignore[attr-defined]
