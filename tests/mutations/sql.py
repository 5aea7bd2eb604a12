"""Every mutant of every fence in the SQL of the SQLite store, against everything that may catch it: `make mutants`.

    python -m mutations.sql [STATEMENT...]      with PYTHONPATH=tests; some minutes on two cores
    python -m mutations.sql equivalents         those that are said to change nothing: nothing may catch them

Ends with 1 if one survives that is not known, with its reason, to change nothing (`sql_equivalents`).
"""

from __future__ import annotations

import multiprocessing
import os
import sys

from mutations.sql_catching import Catcher
from mutations.sql_equivalents import is_equivalent
from mutations.sql_mutants import Mutant, fences

EQUIVALENTS = "equivalents"


def chosen(words: list[str]) -> list[Mutant]:
    if words == [EQUIVALENTS]:
        return [one for one in fences() if is_equivalent(one)]
    return [one for one in fences() if not is_equivalent(one) and (not words or one.statement in words)]


def survivors(part: int, parts: int, words: list[str]) -> list[str]:
    """Those of every so manieth mutant that nothing catches."""
    catcher = Catcher()
    try:
        return [one.id for one in chosen(words)[part::parts] if catcher.caught_by(one) is None]
    finally:
        catcher.close()


def main(words: list[str]) -> int:
    mutants, parts = chosen(words), os.cpu_count() or 1
    with multiprocessing.get_context("spawn").Pool(parts) as pool:
        survived = {
            name for found in pool.starmap(survivors, [(n, parts, words) for n in range(parts)]) for name in found
        }
    wrong = sorted({one.id for one in mutants} - survived if words == [EQUIVALENTS] else survived)
    for name in wrong:
        print(f"{'caught' if words == [EQUIVALENTS] else 'survived'}: {name}")
    print(f"{len(mutants)} mutants, {len(survived)} survived")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
