"""The page `docs/reference/mutations.md`, from the list."""

from __future__ import annotations

from collections.abc import Mapping

from mutations.mutations import MUTATIONS, SIMULATOR

_HEAD = """# Mutations

A test that cannot fail proves nothing. Each of these bugs is put into the code on purpose, as a small change in memory,
and has to be caught: by the [simulator](simulator.md), or by the test named. `tests/mutations` does so; the page is
written by `PYTHONPATH=tests .venv/bin/python -m mutations`.

Besides, every condition of every fence that decides in SQLite whether a turn is accepted is weakened, one at a time,
and caught by worlds on SQLite (`tests/mutations/fences.py` makes these from the statements as they stand).

The bugs of a fleet are mistakes that are easy to make with several writers: the tests that catch them choose the order
in which two transactions commit ([0162](../decisions/0162-choose-interleavings-by-holding-transactions.md)). Where two
places defend the same, both are broken.

"Seed" is a world that showed the bug when the page was written; it changes when the code does. Most are shown by one of
the first hundred seeds.

| mutation | the bug | where | caught by | seed |
|---|---|---|---|---|
"""


def page(found: Mapping[str, int]) -> str:
    rows = [
        f"| {one.name} | {one.bug} | `{one.where.partition(':')[2]}` | "
        f"{one.caught_by if one.caught_by == SIMULATOR else f'`{one.caught_by}`'} | {found.get(one.name, '')} |"
        for one in MUTATIONS
    ]
    return _HEAD + "\n".join(rows) + "\n"
