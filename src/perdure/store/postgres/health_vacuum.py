"""What keeps PostgreSQL from cleaning up, and what has become of it: transactions, dead rows, autovacuum.

Each update leaves a dead row behind until a vacuum removes it, and a vacuum removes only what no transaction can see.
One that is left open somewhere (a report, a psql, a standby) slows down everybody, and nothing tells who it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from perdure import limits
from perdure.store.health import (
    Finding,
    Level,
    attention,
    count_text,
    duration_text,
    fine,
    problem,
)
from perdure.store.postgres.faults import name_text
from perdure.store.sql.rows import Values

IDLE_SECONDS: Final = limits.DOCTOR_IDLE_SECONDS


class Holder(NamedTuple):
    """A transaction, or what stands for one; the oldest that it can see decides what a vacuum leaves."""

    kind: str
    name: str
    user: str
    application: str
    client: str
    state: str
    seconds: int | None
    since: str | None
    #: Transactions that have begun since.
    passed: int

    @property
    def level(self) -> Level:
        seconds = self.seconds or 0
        if seconds >= limits.DOCTOR_TRANSACTION_SECONDS_PROBLEM or self.passed >= limits.DOCTOR_TRANSACTIONS_PROBLEM:
            return Level.PROBLEM
        if (
            seconds >= limits.DOCTOR_TRANSACTION_SECONDS_ATTENTION
            or self.passed >= limits.DOCTOR_TRANSACTIONS_ATTENTION
        ):
            return Level.ATTENTION
        return Level.OK

    def described(self) -> str:
        match self.kind:
            case "prepared":
                return f"the prepared transaction {self.name!r} of user {self.user!r}, since {self.since}"
            case "slot":
                return f"the {self.state} replication slot {self.name!r}"
            case _:
                return f"{session_text(self.name, self.user, self.application, self.client)}{self._lasting()}"

    def _lasting(self) -> str:
        if self.since is None:
            return ", since when is hidden from this role"
        state = f", {self.state}" if self.state else ""
        return f"{state}, since {self.since} ({duration_text(self.seconds or 0)})"

    def advice(self, role: str) -> str:
        match self.kind:
            case "prepared":
                return (
                    f"Nobody may have it in mind any more: COMMIT PREPARED or ROLLBACK PREPARED {literal(self.name)};"
                )
            case "slot":
                return f"Bring its standby back, or give it up: SELECT pg_drop_replication_slot({literal(self.name)});"
            case _:
                hidden = f" {shown_by(role)}" if self.since is None else ""
                return f"Let it end, or end it: SELECT pg_terminate_backend({self.name});{hidden}"


def session_text(pid: str, user: str, application: str, client: str) -> str:
    """Who a session is."""
    name = f" {application!r}" if application else ""
    return f"session {pid}{name} of user {user!r}" + (f" from {client}" if client else "")


def literal(text: str) -> str:
    """For people to copy."""
    return "'" + text.replace("'", "''") + "'"


def shown_by(role: str) -> str:
    return f"More is shown after GRANT pg_read_all_stats TO {name_text(role)};"


def oldest_transaction(rows: Sequence[Values], role: str) -> Finding:
    """Which one holds back vacuum the most. `rows`: by how many have begun since."""
    holders = [Holder(*row) for row in rows]
    check = "oldest-transaction"
    if not holders:
        return fine(check, "no transaction is open elsewhere")
    # One whose beginning is far back counts, also if few have begun since; else the one that holds back the most.
    worst = max(holders, key=lambda one: (one.level.rank, one.passed))
    text = f"{worst.described()}; {count_text(worst.passed, 'transaction')} began since"
    figures: dict[str, Any] = {**worst._asdict(), "others": len(holders) - 1}
    if worst.level is Level.OK:
        return fine(check, text, **figures)
    text += (
        ". Until it ends no vacuum removes what was changed or deleted since then, so tables and indexes grow and "
        "claims and turns become slower"
    )
    found = problem if worst.level is Level.PROBLEM else attention
    return found(check, text, worst.advice(role), **figures)


def idle_transactions(rows: Sequence[Values], role: str) -> Finding:
    """Sessions that began a transaction and do nothing in it."""
    check = "idle-transactions"
    hidden = [row for row in rows if not row[4]]
    found = [row for row in rows if row[4]]
    if not found:
        if hidden:
            text = f"none is seen; what {count_text(len(hidden), 'session')} of other users do is hidden from this role"
            return fine(check, text, shown_by(role), hidden=len(hidden))
        return fine(check, f"none for longer than {duration_text(IDLE_SECONDS)}")
    pid, user, application, client, state, seconds = found[0]
    text = (
        f"{count_text(len(found), 'session')} idle in a transaction; for the longest time, {duration_text(seconds)}, "
        f"{session_text(pid, user, application, client)} ({state}). It may keep locks that others wait for"
    )
    advice = (
        f"End it: SELECT pg_terminate_backend({pid}); and let the server do so by itself: "
        f"ALTER ROLE {name_text(user)} SET idle_in_transaction_session_timeout = '60s';"
    )
    return attention(check, text, advice, sessions=len(found), pid=int(pid), seconds=seconds, hidden=len(hidden))


def autovacuum(is_on: int, frozen_age: int) -> list[Finding]:
    check = "autovacuum"
    found = [
        fine(check, "on")
        if is_on
        else problem(
            check,
            "off: nobody removes dead rows, and every claim and turn becomes slower with time",
            "Set autovacuum = on and track_counts = on in postgresql.conf, and reload it.",
        )
    ]
    text = (
        f"the oldest row was frozen {frozen_age:,} transactions ago; the server stops taking changes at 2,100,000,000"
    )
    if frozen_age < limits.DOCTOR_FREEZE_ATTENTION:
        return [*found, fine("transaction-numbers", text, age=frozen_age)]
    make = problem if frozen_age >= limits.DOCTOR_FREEZE_PROBLEM else attention
    advice = "Find out what holds vacuum back (oldest-transaction), then VACUUM (FREEZE) the database."
    return [*found, make("transaction-numbers", text, advice, age=frozen_age)]


def dead_rows(rows: Sequence[Values], schema: str) -> Finding:
    """Of our tables, as the server estimates them."""
    check, worst, level = "dead-rows", None, Level.OK
    for row in rows:
        found = _level_of(row[1], row[2])
        if worst is None or found.rank > level.rank:
            worst, level = row, found
    if worst is None:
        return fine(check, "no table is there")
    name, live, dead, since, _, _ = worst
    ago = "never" if since is None else f"{duration_text(since)} ago"
    text = f"{count_text(dead, 'dead row')} beside {live:,} live ones in {name}, vacuumed {ago}"
    never = [row[0] for row in rows if row[5]]
    figures: dict[str, Any] = {"table": name, "dead": dead, "live": live, "vacuumed_seconds_ago": since}
    if never:
        text += f"; autovacuum is switched off for {', '.join(never)}"
        advice = f"ALTER TABLE {name_text(schema)}.{never[0]} RESET (autovacuum_enabled);"
        return attention(check, text, advice, **figures)
    if level is Level.OK:
        return fine(check, text, **figures)
    advice = (
        f"If oldest-transaction is well: VACUUM {name_text(schema)}.{name}; and look why autovacuum does not keep up "
        "(autovacuum_max_workers, autovacuum_naptime)."
    )
    return (problem if level is Level.PROBLEM else attention)(check, text, advice, **figures)


def _level_of(live: int, dead: int) -> Level:
    part = dead / (live + dead) if live + dead else 0.0
    if dead < limits.DOCTOR_DEAD_ROWS_MIN or part < limits.DOCTOR_DEAD_PART_ATTENTION:
        return Level.OK
    many = dead >= 10 * limits.DOCTOR_DEAD_ROWS_MIN
    return Level.PROBLEM if many and part >= limits.DOCTOR_DEAD_PART_PROBLEM else Level.ATTENTION
