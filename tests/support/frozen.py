"""Digests of what may not change: traces and journals of simulated worlds, and of random programs of the kernel.

`tests/frozen/*.txt` hold the first characters of each digest, `PER_LINE` of them a line, in the order of their seeds. A
test asks `changed`; `python -m support.frozen` writes the files anew, which is right only when what a run does was
changed on purpose, and then the commit says why.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from pathlib import Path

from kernel.programs import explore
from sim.plan import MORE_FAULTS, USUAL, Setting
from sim.world import simulate

FROZEN = Path(__file__).parents[1] / "frozen"
CHARACTERS, PER_LINE = 8, 10

#: How many worlds of each kind are frozen.
SETTINGS: dict[str, tuple[Setting, int]] = {
    "worlds": (USUAL, 5000),
    **{f"worlds-{kind}": (Setting(frozenset({kind})), 200) for kind in MORE_FAULTS},
}
PROGRAMS, PROGRAMS_FROZEN = "programs", 5000


@functools.cache
def frozen(name: str) -> list[str]:
    return (FROZEN / f"{name}.txt").read_text().split()


def changed(name: str, digests: Iterable[tuple[int, str]]) -> list[int]:
    """The seeds whose digest is not the frozen one. A seed that was never frozen is not among them.

    Frozen on Python 3.11. On later ones `wait_for` makes no task of its own, so a program that ends while one waits
    names a task less among those that were cancelled.
    """
    kept = frozen(name) if name != PROGRAMS or sys.version_info < (3, 12) else []
    return [seed for seed, digest in digests if seed < len(kept) and kept[seed] != digest[:CHARACTERS]]


def changed_worlds(name: str, first: int, last: int) -> list[int]:
    setting = SETTINGS[name][0]
    return changed(name, ((seed, simulate(seed, None, setting).digest) for seed in range(first, last)))


def changed_programs(first: int, last: int) -> list[int]:
    return changed(PROGRAMS, ((seed, explore(seed)) for seed in range(first, last)))


def print_changed(name: str, first: str, last: str) -> None:
    """For a process of its own: one line with the seeds, or `none`."""
    seeds = changed_programs(int(first), int(last)) if name == PROGRAMS else changed_worlds(name, int(first), int(last))
    print(" ".join(map(str, seeds)) or "none", flush=True)


def _write(name: str, digests: Iterable[str]) -> None:
    kept = [digest[:CHARACTERS] for digest in digests]
    lines = (" ".join(kept[at : at + PER_LINE]) for at in range(0, len(kept), PER_LINE))
    (FROZEN / f"{name}.txt").write_text("\n".join(lines) + "\n")


def main() -> None:
    FROZEN.mkdir(exist_ok=True)
    for name, (setting, count) in SETTINGS.items():
        _write(name, (simulate(seed, None, setting).digest for seed in range(count)))
        sys.stdout.write(f"{count} {name}\n")
    _write(PROGRAMS, (explore(seed) for seed in range(PROGRAMS_FROZEN)))
    sys.stdout.write(f"{PROGRAMS_FROZEN} {PROGRAMS}\n")


if __name__ == "__main__":
    main()
