"""Mutants of the SQL of PostgreSQL that no check can catch, because they change nothing: see `sql_equivalents`.

A claim here is about the data alone, without parameters: SQL whose one value is true, or that has no row, each time the
statement is about to be executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mutations.sql_equivalents import Reason
from mutations.sql_mutants import Mutant

EQUIVALENT_ON_POSTGRES: Mapping[str, Reason] = {}


def claims_of(statement: str) -> Iterator[str]:
    """What is to be true when a statement is executed."""
    for name, reason in EQUIVALENT_ON_POSTGRES.items():
        if name.partition(":")[0] == statement:
            yield reason.claim


def is_equivalent_on_postgres(mutant: Mutant) -> bool:
    return mutant.id in EQUIVALENT_ON_POSTGRES
