"""Apply every mutation in turn and write down what caught it."""

from __future__ import annotations

import sys
from pathlib import Path

from mutations.catching import seeds_needed
from mutations.mutations import MUTATIONS, SIMULATOR
from mutations.page import page

SEEDS_MAX = 10_000


def main(names: list[str]) -> int:
    found: dict[str, int] = {}
    missed = 0
    for mutation in MUTATIONS:
        if mutation.caught_by != SIMULATOR or (names and mutation.name not in names):
            continue
        needed = seeds_needed(mutation, SEEDS_MAX)
        print(f"{mutation.name}: {'not caught' if needed is None else f'seed {needed[0]}: {needed[1]}'}", flush=True)
        if needed is None:
            missed += 1
        else:
            found[mutation.name] = needed[0]
    if not names and not missed:
        Path("docs/reference/mutations.md").write_text(page(found), encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
