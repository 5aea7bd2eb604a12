"""What the answers of a PostgreSQL server mean: versions, privileges, clock, push, durability, standbys, room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from perdure import limits
from perdure.store.health import Finding, attention, count_text, duration_text, fine, problem, size_text
from perdure.store.postgres.connection import OLDEST_SERVER
from perdure.store.postgres.faults import grants_text, name_text
from perdure.store.postgres.health_vacuum import shown_by
from perdure.store.postgres.migrate import newest
from perdure.store.sql.rows import Values

#: The newest one that the tests run on.
_NEWEST_SERVER: Final = 189999


class ServerFacts(NamedTuple):
    version: str
    number: int
    encoding: str
    database: str
    role: str
    is_standby: int


class SchemaFacts(NamedTuple):
    is_there: int
    may_use: int
    may_create_in: int
    may_create: int
    is_ours: int


class Standby(NamedTuple):
    name: str
    state: str
    sync: str
    lag_seconds: int | None
    lag_bytes: int | None


def server(facts: ServerFacts) -> Finding:
    text = f"PostgreSQL {facts.version}, database {facts.database!r}, as user {facts.role!r}"
    figures: dict[str, Any] = {"version": facts.number, "standby": bool(facts.is_standby)}
    if facts.is_standby:
        advice = "Name all servers in the URL (host1,host2): perdure finds the one that takes changes."
        return problem("server", f"{text}: a standby, which takes no changes", advice, **figures)
    if facts.number < OLDEST_SERVER:  # not reached while connecting refuses it
        return problem("server", text, "Upgrade it: perdure needs PostgreSQL 14 or newer.", **figures)
    if facts.number > _NEWEST_SERVER:
        advice = "perdure is tested up to PostgreSQL 18. Look for a newer perdure."
        return attention("server", text, advice, **figures)
    return fine("server", text, **figures)


def encoding(facts: ServerFacts) -> Finding:
    if facts.encoding == "UTF8":
        return fine("encoding", "UTF8")
    advice = f"Make another database: CREATE DATABASE {facts.database}_utf8 ENCODING 'UTF8' TEMPLATE template0;"
    return problem("encoding", f"{facts.encoding}, which perdure does not open", advice, encoding=facts.encoding)


# -- schema and privileges -------------------------------------------------------------------------------


def schema(name: str, facts: SchemaFacts, version: int | None) -> Finding:
    known = newest()
    figures: dict[str, Any] = {"schema": name, "version": version, "newest": known}
    if not facts.is_there or not facts.is_ours:
        what = "has no tables of perdure" if facts.is_there else "does not exist"
        text = f"the schema {name!r} {what} in this database"
        advice = "The first worker makes them (`perdure worker`). If there should be runs, check ?schema= in the URL."
        return attention("schema", text, advice, **figures)
    if version is None:
        return problem("schema", f"the schema {name!r} is there, and this role may not read it", "See privileges.")
    text = f"{name!r} at version {version}; this perdure works with {known}"
    if version < known:
        advice = "Make a backup, mind workers of an older perdure, then start a worker with --migrate."
        return attention("schema", text, advice, **figures)
    if version > known:
        return problem("schema", text, "Upgrade perdure here, or restore a backup of before the migration.", **figures)
    return fine("schema", text, **figures)


def privileges(name: str, server: ServerFacts, facts: SchemaFacts, tables: Sequence[Values]) -> Finding:
    """What the role lacks, for looking and for working. `tables`: name, is a sequence, may read, may change."""
    role, check = name_text(server.role), "privileges"
    if not facts.is_ours:
        if facts.may_create_in if facts.is_there else facts.may_create:
            return fine(check, f"{server.role!r} may make the tables")
        what, where = ("SCHEMA", name) if facts.is_there else ("DATABASE", server.database)
        return problem(
            check, f"{server.role!r} may not make the tables", f"GRANT CREATE ON {what} {name_text(where)} TO {role};"
        )
    unread = [row[0] for row in tables if not row[2] and not row[1]]  # looking needs no sequence
    unchanged = [row[0] for row in tables if not (row[2] and row[3])]
    grants = grants_text(name, server.role)
    figures: dict[str, Any] = {"unreadable": unread, "unchangeable": unchanged}
    if not facts.may_use or unread:
        what = f"the schema {name!r}" if not facts.may_use else ", ".join(unread)
        return problem(check, f"{server.role!r} may not read {what}", grants, **figures)
    if unchanged:
        text = f"{server.role!r} may look, and not change {', '.join(unchanged)}: enough for doctor, not for a worker"
        return attention(check, text, f"If it is to work: {grants}", **figures)
    if not facts.may_create_in:
        text = f"{server.role!r} may do all but migrate the schema"
        return fine(check, text, f"Before an upgrade: GRANT CREATE ON SCHEMA {name_text(name)} TO {role};")
    return fine(check, f"{server.role!r} may do everything that perdure does")


# -- connections -----------------------------------------------------------------------------------------


def clock(offset: float, uncertainty: float) -> Finding:
    """`offset`: how far the database's clock is ahead of ours."""
    ahead = "ahead of" if offset >= 0 else "behind"
    text = (
        f"the database's clock is {duration_text(abs(offset))} {ahead} this machine's (± {duration_text(uncertainty)})"
    )
    figures: dict[str, Any] = {"offset_seconds": offset, "uncertainty_seconds": uncertainty}
    if abs(offset) - uncertainty <= limits.DOCTOR_CLOCK_SECONDS:
        return fine("clock", text, **figures)
    text += ". Workers follow the database, so timers are right; times in logs of this machine are not"
    return attention("clock", text, "Let NTP set both clocks (chronyc tracking, timedatectl).", **figures)


def pooler(is_pooled: bool, prepare: str) -> Finding:
    told = "" if prepare == "auto" else f" (prepare={prepare} in the URL says so)"
    if is_pooled:
        text = f"a pooler gives each transaction another session{told}: statements are not prepared, others are polled"
        return fine("pooler", text, "A direct connection commits faster, and is pushed to.", pooled=True)
    return fine("pooler", f"none in between{told}", pooled=False)


def push(heard: bool | None, wanted: str) -> Finding:
    poll = f"workers look every {limits.POSTGRES_POLL_SECONDS:g} s instead"
    if heard is None:
        return fine("push", "not tried: a standby takes no notifications", works=None)
    if wanted == "off":
        return fine("push", f"switched off in the URL; {poll}", works=heard)
    if heard:
        return fine("push", "LISTEN works: a notification to itself arrived", works=True)
    advice = "Behind a pooler in transaction mode that is so: name the server itself in the URL, or say push=off there."
    return attention("push", f"a notification to itself did not arrive within 1 s; {poll}", advice, works=False)


def connections(row: Values) -> Finding:
    """Sessions, limit, reserved; of the role: sessions and limit; of the database: the same (-1: none)."""
    used, allowed, reserved, of_role, role_limit, of_database, database_limit = row
    room = {"max_connections": allowed - reserved - used}
    if role_limit is not None and role_limit >= 0:
        room["the role's CONNECTION LIMIT"] = role_limit - of_role
    if database_limit >= 0:
        room["the database's CONNECTION LIMIT"] = database_limit - of_database
    which, free = min(room.items(), key=lambda item: item[1])
    need = limits.POSTGRES_CONNECTIONS
    text = (
        f"{used} of {allowed} used ({reserved} more are kept for administrators); {max(free, 0)} free for others by "
        f"{which}; a worker process needs {need}"
    )
    figures: dict[str, Any] = {"used": used, "max": allowed, "free": free, "limited_by": which, "per_process": need}
    if free >= 2 * need:
        return fine("connections", text, **figures)
    advice = f"Raise {which}, end sessions that nobody needs, or put a pooler before the server."
    return (problem if free < need else attention)("connections", text, advice, **figures)


# -- durability ------------------------------------------------------------------------------------------


def durability(row: Values, durability: str) -> Finding:
    fsync, full_pages, checksums, _ = row
    figures: dict[str, Any] = {
        "fsync": fsync,
        "full_page_writes": full_pages,
        "checksums": checksums,
        "durability": durability,
    }
    off = [name for name, value in (("fsync", fsync), ("full_page_writes", full_pages)) if value != "on"]
    if off:
        text = f"{' and '.join(off)} off: a power cut loses what was acknowledged, or the whole database"
        advice = f"Set {', '.join(f'{name} = on' for name in off)} in postgresql.conf, and reload it."
        return problem("durability", text, advice, **figures)
    if durability == "relaxed":
        text = "durability=relaxed in the URL: a crash of the server may lose the last commits, and nothing else"
        return fine("durability", text, **figures)
    return fine("durability", f"what is acknowledged survives a power cut (fsync on, checksums {checksums})", **figures)


def replication(facts: ServerFacts, standbys: Sequence[Standby], wanted: str, durability: str) -> Finding:
    """`wanted`: synchronous_standby_names."""
    check = "replication"
    waiting = [one for one in standbys if one.sync in ("sync", "quorum")]
    figures: dict[str, Any] = {"standbys": [one._asdict() for one in standbys], "synchronous_standby_names": wanted}
    hidden = any(not one.state for one in standbys)
    advice = shown_by(facts.role) if hidden else ""
    if wanted and durability == "full" and not waiting and not hidden:
        text = f"commits wait for a synchronous standby ({wanted}) and none is connected"
        return problem(check, text, "Bring a standby back, or take it out of synchronous_standby_names.", **figures)
    if not standbys:
        text = "no standby: what the disk of this server loses is gone, but for backups"
        return fine(check, text, **figures)
    names = ", ".join(_standby_text(one) for one in standbys)
    if wanted and durability == "full":
        promise = "a commit is acknowledged when a synchronous standby has it: a failover to it loses nothing"
    else:
        promise = "no commit waits for a standby: a failover loses what had not arrived there"
    text = f"{names}. {promise[0].upper()}{promise[1:]}"
    late = [
        one
        for one in standbys
        if (one.lag_seconds or 0) > limits.DOCTOR_LAG_SECONDS or (one.lag_bytes or 0) > limits.DOCTOR_WAL_BYTES
    ]
    if late:
        text += f"; {late[0].name!r} lags far behind"
        return attention(check, text, "Look at its network, its disk, and at long queries there.", **figures)
    return fine(check, text, advice, **figures)


def _standby_text(one: Standby) -> str:
    if not one.state:
        return f"{one.name!r} (its state is hidden from this role)"
    behind = size_text(one.lag_bytes) if one.lag_bytes is not None else "an unknown amount"
    lag = f", {duration_text(one.lag_seconds)}" if one.lag_seconds else ""
    return f"{one.name!r} ({one.state}, {one.sync}, {behind} behind{lag})"


def slots(rows: Sequence[Values]) -> Finding:
    """Slots keep WAL for those that do not fetch it, until the disk is full."""
    check = "replication-slots"
    if not rows:
        return fine(check, "none")
    name, is_active, status, kept = max(rows, key=lambda row: row[3] or 0)
    text = f"{count_text(len(rows), 'slot')}; {name!r} ({'active' if is_active else 'inactive'}) keeps "
    text += size_text(max(kept, 0)) + " of WAL" if kept is not None else "none of the WAL"
    figures: dict[str, Any] = {"slot": name, "active": bool(is_active), "kept_bytes": kept, "wal_status": status}
    lost = [row[0] for row in rows if row[2] == "lost"]
    if lost:
        text += f"; {lost[0]!r} has lost what it needs"
    if not lost and (kept or 0) < limits.DOCTOR_WAL_BYTES:
        return fine(check, text, **figures)
    advice = "Bring its standby back, or drop the slot (pg_drop_replication_slot) before the disk is full."
    return attention(check, text, advice, **figures)


def disk(tables: Sequence[Values], database: int, temporary: int | None, wal: int | None) -> Finding:
    """What is known from inside. How much is free only the machine of the server knows."""
    largest = sorted(tables, key=lambda row: -row[4])[:3]
    ours = sum(row[4] for row in tables)
    names = f" ({', '.join(f'{row[0]} {size_text(row[4])}' for row in largest)})" if largest else ""
    parts = [f"tables of perdure {size_text(ours)}{names}", f"the database {size_text(database)}"]
    parts.append("WAL hidden from this role" if wal is None else f"WAL {size_text(wal)}")
    if temporary is not None:
        parts.append(f"{size_text(temporary)} of temporary files since the statistics began")
    advice = "" if wal is not None else "The size of the WAL is shown to members of pg_monitor."
    figures: dict[str, Any] = {"tables": ours, "database": database, "wal": wal, "temporary": temporary}
    return fine("disk", ", ".join(parts), advice, **figures)
