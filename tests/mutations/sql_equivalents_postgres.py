"""Mutants of the SQL of PostgreSQL that no check can catch, because they change nothing: see `sql_equivalents`.

A claim here is about the data alone, without parameters: SQL whose one value is true, or that has no row, each time the
statement is about to be executed by a thread. Not all survivors are here yet: `make mutants` names the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mutations.sql_equivalents import Reason
from mutations.sql_mutants import STATUSES, Mutant
from perdure.store.model import CLAIMABLE

_ALWAYS = "SELECT true"
_FIRST_GENERATION = Reason("generations begin with 1", "SELECT coalesce(min(generation), 1) >= 1 FROM runs")
_SAYS_THE_SAME = Reason("it answers with the keys of all turns, instead of NULL for all of them", _ALWAYS)
_NOT_NEGATIVE = Reason("a count is not negative", _ALWAYS)
_BY_ITS_KEY = Reason("the key finds the row, too, only slower; or the turn goes the general way", _ALWAYS)
_HAS_NOT_MOVED = Reason(
    "a row is where the last turn left it as long as nothing has changed it: running, and its worker's", _ALWAYS
)
_STATUSES = "status IN ('pending', 'running', 'waiting')"
_ALONE = ("lane_step", "lane_step_seek", "lane_step_here")

EQUIVALENT_ON_POSTGRES: Mapping[str, Reason] = {
    **{f"{name}: <= in generation = 1": _FIRST_GENERATION for name in _ALONE},
    "lane_steps: <= in r.generation = 1": _FIRST_GENERATION,
    **{f"{name}: <= in count(*) = 0": _NOT_NEGATIVE for name in _ALONE},
    **{
        f"{name}: {how} count(*) < {parameter}::int": _SAYS_THE_SAME
        for name, parameter in (("lane_steps", "$10"), ("lane_turns", "$20"), ("lane_ends", "$20"))
        for how in ("always", "<= in")
    },
    "lane_ends: <= in r.last_item = 0": Reason(
        "items begin with 1", "SELECT coalesce(min(last_item), 0) >= 0 FROM runs"
    ),
    "lane_ends: <= in r.watched = 0": Reason("it is 0 or 1", "SELECT coalesce(min(watched), 0) >= 0 FROM runs"),
    **{f"lane_step_here: {how} ctid = $10::tid": _BY_ITS_KEY for how in ("always", "<= in", ">= in")},
    "lane_step_here: keeps status = 'running'": _HAS_NOT_MOVED,
    f"lane_step_here: always {_STATUSES}": _HAS_NOT_MOVED,
    "lane_step_here: never owner IS NULL": _HAS_NOT_MOVED,
    **{f"lane_step_here: not '{status}' in {_STATUSES}": _HAS_NOT_MOVED for status in ("pending", "waiting")},
    **{
        f"lane_step_here: also '{status}' in {_STATUSES}": _HAS_NOT_MOVED
        for status in STATUSES
        if status not in CLAIMABLE
    },
    "wake_run: >= in coalesce(ready_at, suspect_at) > 0": Reason(
        "what is due at once is due before 0", "SELECT count(*) = 0 FROM runs WHERE coalesce(ready_at, suspect_at) = 0"
    ),
}  # fmt: skip


def claims_of(statement: str) -> Iterator[str]:
    """What is to be true when a statement is executed."""
    for name, reason in EQUIVALENT_ON_POSTGRES.items():
        if name.partition(":")[0] == statement:
            yield reason.claim


def is_equivalent_on_postgres(mutant: Mutant) -> bool:
    return mutant.id in EQUIVALENT_ON_POSTGRES
