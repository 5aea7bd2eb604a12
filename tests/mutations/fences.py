"""The fences of turns, in every place where SQLite has one: each condition weakened, one at a time.

Generated from the statements as they stand: every WHERE that compares the generation and `next_seq` decides whether a
turn is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mutations.mutations import Mutation
from perdure.store.sqlite.queries import SQL
from sim.plan import Setting

_FENCE = re.compile(r"WHERE (?:(?!WHERE).)*?generation = (?:(?!WHERE).)*?next_seq = (?:(?!WHERE).)*?(?:;|\Z)", re.S)
_ZOMBIES = Setting(frozenset({"zombies"}), "sqlite")


def weakened_fences() -> Iterator[Mutation]:
    for name, statement in SQL.items():
        for number, fence in enumerate(_FENCE.findall(statement), 1):
            # Which run it is about must stay.
            _, *conditions = re.split(r"\s+AND\s+", fence.rstrip(";"))
            for condition in conditions:
                column = condition.split()[0]
                if column.startswith("("):  # the owner: no world goes back in time, so the store suite looks for it
                    continue
                yield Mutation(
                    f"{name}-{number}-{column}", f"a turn is accepted whatever the {column} of its run", f"sql:{name}",
                    fence, fence.replace(condition, f"({condition} OR 1)"), setting=_ZOMBIES,
                )  # fmt: skip
