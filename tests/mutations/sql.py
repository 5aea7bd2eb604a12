"""Every mutant of every fence in the SQL of the stores, against everything that may catch it: `make mutants`.

    python -m mutations.sql [sqlite|postgres] [STATEMENT...]      with PYTHONPATH=tests; some minutes on two cores
    python -m mutations.sql [sqlite|postgres] equivalents         those that are said to change nothing: nothing may
                                                                  catch them

Ends with 1 if one survives that is not known, with its reason, to change nothing (`sql_equivalents`,
`sql_equivalents_postgres`).
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from mutations import sql_mutants
from mutations.sql_catching import Catcher
from mutations.sql_catching_postgres import ALL_ON_POSTGRES, PostgresBackend
from mutations.sql_equivalents import is_equivalent
from mutations.sql_equivalents_postgres import is_equivalent_on_postgres
from mutations.sql_mutants import Mutant
from perdure.store.postgres.queries import SQL as POSTGRES_SQL
from support.postgres import server

EQUIVALENTS = "equivalents"


class Kind(NamedTuple):
    mutants: Callable[[], list[Mutant]]
    is_equivalent: Callable[[Mutant], bool]
    catcher: Callable[[], Catcher]


KINDS = {
    "sqlite": Kind(sql_mutants.fences, is_equivalent, Catcher),
    "postgres": Kind(
        lambda: sql_mutants.fences(POSTGRES_SQL, sql_mutants.POSTGRES),
        is_equivalent_on_postgres,
        lambda: Catcher(ALL_ON_POSTGRES, PostgresBackend()),
    ),
}


def chosen(kind: str, words: list[str]) -> list[Mutant]:
    mutants, is_known, _ = KINDS[kind]
    if words == [EQUIVALENTS]:
        return [one for one in mutants() if is_known(one)]
    return [one for one in mutants() if not is_known(one) and (not words or one.statement in words)]


def survivors(kind: str, part: int, parts: int, words: list[str]) -> list[str]:
    """Those of every so manieth mutant that nothing catches."""
    catcher = KINDS[kind].catcher()
    try:
        return [one.id for one in chosen(kind, words)[part::parts] if catcher.caught_by(one) is None]
    finally:
        catcher.close()


def tried(kind: str, words: list[str]) -> bool:
    """Say which survive, or of those that are said to change nothing which do not. False: there are such."""
    mutants, parts, began = chosen(kind, words), os.cpu_count() or 1, time.monotonic()
    if not mutants:
        return True
    if kind == "postgres":
        server()  # one for all processes
    with multiprocessing.get_context("spawn").Pool(parts) as pool:
        asked = [(kind, part, parts, words) for part in range(parts)]
        survived = {name for found in pool.starmap(survivors, asked) for name in found}
    wrong = sorted({one.id for one in mutants} - survived if words == [EQUIVALENTS] else survived)
    for name in wrong:
        print(f"{kind}: {'caught' if words == [EQUIVALENTS] else 'survived'}: {name}")
    print(f"{kind}: {len(mutants)} mutants, {len(survived)} survived, {time.monotonic() - began:.0f} s", flush=True)
    return not wrong


def main(words: list[str]) -> int:
    kinds = [words[0]] if words and words[0] in KINDS else list(KINDS)
    rest = words[1:] if words and words[0] in KINDS else words
    failed = [kind for kind in kinds if not tried(kind, rest)]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
