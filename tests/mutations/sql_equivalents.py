"""Mutants of the SQL that no check can catch, because they change nothing: each with the reason, and with a claim.

A claim is SQL that must be true, or have no row, each time the statement is about to be executed, with the same
parameters; the claims are looked at in every check and every life (`sql_catching`), so that a reason which stops being
one is noticed. Conditions that are only there for speed are no reason: `stores.fast_path` catches those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mutations.sql_mutants import STATUSES, Mutant
from perdure.store.model import CLAIMABLE


class Reason(NamedTuple):
    why: str
    claim: str


_FIRST_GENERATION = Reason("generations begin with 1", "SELECT min(generation) >= 1 FROM runs")
_ONE_ROW = Reason(
    "an UPDATE changes a run once, however many rows name it, so it never changes more than it was given",
    "SELECT sql LIKE '%key %INTEGER PRIMARY KEY%' FROM sqlite_schema WHERE name = 'runs'",
)
_NO_LATER_GENERATION = Reason(
    "no journal has a generation that its run has not come to",
    "SELECT NOT EXISTS (SELECT 1 FROM journal, runs WHERE key = run_key AND journal.generation > runs.generation)",
)
_EMPTY = "'$[{0}]' IS NOT NULL OR value ->> '$[{1}]' IS NOT NULL"


def _nothing_more(rows: str, *places: int) -> Reason:
    return Reason(
        "without a status or a state in the group there is no place of one in its rows, and no text there is NULL",
        f"SELECT ?10 OR NOT EXISTS (SELECT 1 FROM json_each({rows}) WHERE value ->> {_EMPTY.format(*places)})",
    )


_ENDED_BY_A_RECORD = Reason(
    "its last record was progress, which takes back what its workers died of",
    "SELECT NOT EXISTS (SELECT 1 FROM runs WHERE status IN ('completed', 'failed') AND recoveries > 0)",
)
_FOR_THE_INDEX = Reason(
    "`recoveries = 1` says it, too; without it SQLite does not take the index",
    "SELECT NOT EXISTS (SELECT 1 FROM runs WHERE recoveries = 1 AND NOT recoveries > 0)",
)
_NOT_NEGATIVE = Reason("nobody dies less than never", "SELECT min(recoveries) >= 0 FROM runs")
_EITHER = Reason(
    "one of its two halves finds the run, whatever its recoveries", "SELECT min(recoveries) >= 0 FROM runs"
)
_NOBODYS = Reason(
    "a run that has ended or is parked is nobody's",
    "SELECT NOT EXISTS (SELECT 1 FROM runs WHERE owner IS NOT NULL AND status IN ('completed', 'failed', 'parked'))",
)
_ONLY_PENDING = Reason(
    "of the statuses that can be claimed it is the first in the alphabet",
    "SELECT min('running', 'waiting') > 'pending'",
)
_WAKES = Reason("it sets what is set", "SELECT min(ready_at) >= 0 FROM runs")

EQUIVALENT: Mapping[str, Reason] = {
    "bulk_trigger: <= in generation = 1": _FIRST_GENERATION,
    "step_trigger: <= in generation = 1": _FIRST_GENERATION,
    "bulk_trigger: < in changes() <> NEW.stepped_count": _ONE_ROW,
    "bulk_trigger: < in changes() <> NEW.advanced_count": _ONE_ROW,
    "bulk_trigger: < in changes() <> NEW.finished_count": _ONE_ROW,
    "step_trigger: < in changes() <> 1": _ONE_ROW,
    "bulk_trigger: always NEW.with_more": _nothing_more("?2", 10, 12),
    "bulk_trigger: always NEW.with_more (no. 2)": _nothing_more("?2", 10, 12),
    "bulk_trigger: always NEW.with_more (no. 3)": _nothing_more("?3", 10, 12),
    "bulk_trigger: always NEW.with_more (no. 4)": _nothing_more("?3", 10, 12),
    "bulk_trigger: always NEW.with_more (no. 5)": _nothing_more("?5", 12, 14),
    "bulk_trigger: always NEW.with_more (no. 6)": _nothing_more("?5", 12, 14),
    "bulk_trigger: <= in last_item = 0": Reason("items begin with 1", "SELECT min(last_item) >= 0 FROM runs"),
    "bulk_trigger: <= in watched = 0": Reason("it is 0 or 1", "SELECT min(watched) >= 0 FROM runs"),
    "bulk_trigger: >= in id = NEW.runs ->> '$[0][0]'": Reason(
        "the run has just been created, and the index of ids finds the least first", "SELECT 1"
    ),
    "prune_record: >= in generation = ?": _NO_LATER_GENERATION,
    "end_of_run: >= in generation = ?": _NO_LATER_GENERATION,
    "note_pruned: <= in generation = ?": Reason(
        "the turn was accepted: its run is of its generation, or has just gone on to the next",
        "SELECT generation >= ?3 FROM runs WHERE key = ?2",
    ),
    "wake_run: always owner IS NULL": Reason(
        "`ready_at` counts while nobody owns the run, and whatever makes it nobody's sets it or ends it",
        "SELECT 1",
    ),
    "wake_run: always ready_at > 0": _WAKES,
    "wake_run: >= in ready_at > 0": _WAKES,
    **{
        f"pause_run: {change} status IN ('pending', 'running', 'waiting')": Reason(
            "`lifecycle.pause` has looked, in the same transaction",
            "SELECT status IN ('pending', 'running', 'waiting') FROM runs WHERE key = ?3",
        )
        for change in ("always", *(f"also '{status}' in" for status in STATUSES if status not in CLAIMABLE))
    },
    "claim_trusted: also 'completed' in status IN ('pending', 'running', 'waiting') (no. 2)": _ENDED_BY_A_RECORD,
    "claim_trusted: also 'failed' in status IN ('pending', 'running', 'waiting') (no. 2)": _ENDED_BY_A_RECORD,
    "claim_suspects: also 'completed' in status IN ('pending', 'running', 'waiting')": _ENDED_BY_A_RECORD,
    "claim_suspects: also 'failed' in status IN ('pending', 'running', 'waiting')": _ENDED_BY_A_RECORD,
    "is_anything_due: also 'completed' in status IN ('pending', 'running', 'waiting') (no. 2)": _ENDED_BY_A_RECORD,
    "is_anything_due: also 'failed' in status IN ('pending', 'running', 'waiting') (no. 2)": _ENDED_BY_A_RECORD,
    "claim_runs: <= in status = 'pending'": _ONLY_PENDING,
    "claim_trusted: <= in status = 'pending'": _ONLY_PENDING,
    "claim_suspects: <= in status = 'pending'": _ONLY_PENDING,
    "claim_runs: <= in recoveries = 0": _NOT_NEGATIVE,
    "claim_trusted: <= in recoveries = 0": _NOT_NEGATIVE,
    "is_anything_due: <= in recoveries = 0": _NOT_NEGATIVE,
    "claim_trusted: <= in recoveries = 1": Reason(
        "nothing is between 0 and 1", "SELECT NOT EXISTS (SELECT 1 FROM runs WHERE recoveries > 0 AND recoveries < 1)"
    ),
    "claim_suspects: always recoveries > 0": Reason("more than `trusted` is more than 0", "SELECT ?5 >= 0"),
    "claim_suspects: >= in recoveries > 0": Reason("more than `trusted` is more than 0", "SELECT ?5 >= 0"),
    "is_anything_due: always recoveries = 0": _EITHER,
    "is_anything_due: >= in recoveries = 0": _EITHER,
    "is_anything_due: always recoveries > 0": _EITHER,
    "is_anything_due: >= in recoveries > 0": _EITHER,
    **{
        f"{statement}: also '{status}' in status {how} ('pending', 'running', 'waiting')": _NOBODYS
        for statement, how in (("release_runs", "IN"), ("let_go", "NOT IN"), ("runs_held", "IN"))
        for status in ("completed", "failed", "parked")
    },
    "release_runs: <= in status = 'running'": Reason(
        "a pending run stays pending", "SELECT 'pending' < 'running' AND 'running' < 'waiting'"
    ),
    "free_runs: >= in status = 'waiting'": Reason(
        "it is the last in the alphabet", "SELECT max(status) <= 'waiting' FROM runs"
    ),
    "orphaned_owners: always owner IS NOT NULL": Reason(
        "nobody is not different from the worker that asks, as SQL has it", "SELECT (NULL <> 'w1') IS NULL"
    ),
    "claim_trusted: always recoveries > 0": _FOR_THE_INDEX,
    "claim_trusted: >= in recoveries > 0": _FOR_THE_INDEX,
    "reopen_run: keeps owner = NULL": Reason(
        "a run that failed is nobody's", "SELECT owner IS NULL FROM runs WHERE key = ?3 AND status = 'failed'"
    ),
}  # fmt: skip


def claims_of(statement: str) -> Iterator[str]:
    """What is to be true when a statement is executed; a trigger's claims are those of the statement that fires it."""
    for name, reason in EQUIVALENT.items():
        if name.partition(":")[0].removesuffix("_trigger") == statement:
            yield reason.claim


def parameters_of(claim: str) -> int:
    """How many of the first parameters it needs."""
    return max((int(number) for number in re.findall(r"\?(\d+)", claim)), default=0)


def is_equivalent(mutant: Mutant) -> bool:
    return mutant.id in EQUIVALENT
