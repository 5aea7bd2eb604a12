"""What PostgreSQL says when something goes wrong, in our words. Nothing else in this package reads a SQLSTATE.

`Fault` is an error of one statement. What becomes of it depends on its class (docs/reference/locks.md):
repeat the transaction, open another connection, or tell the caller.
"""

from __future__ import annotations

import re
from typing import Final

from perdure.errors import RunMoved, StoreError, StoreUnavailable, StoreUnusable
from perdure.limits import POSTGRES_CONNECTIONS
from perdure.store import refusals
from perdure.store.postgres.url import parse

#: Repeating the whole transaction may succeed: serialization failure, deadlock, lock not available, a plan that a
#: migration made stale, a row that somebody else inserted between a look and an insert.
REPEATABLE: Final = frozenset({"40001", "40P01", "55P03", "0A000", "23505"})
#: The lock that was asked for without waiting is held by somebody else, or was waited for too long.
LOCK_NOT_AVAILABLE: Final = "55P03"
#: The session is over: terminated, server shutting down, crash of another backend.
_SESSION_OVER: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})
_READ_ONLY: Final = "25006"
#: Of the class of errors in statements, and yet not of the statement: a privilege, a table or a column that is missing.
_OF_THE_SCHEMA: Final = frozenset({"42501", "42P01", "42703"})
#: A migration changed what a prepared statement answers with. The server refuses it for as long as it is prepared.
_STALE_PLAN: Final = "0A000"
#: Everything here goes to another store, or has gone: what the triggers of `refuse_changes` raise.
_MOVED: Final = {"PM001": False, "PM002": True}


def name_text(name: str) -> str:
    """An identifier for people to copy into SQL."""
    return name if re.fullmatch("[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def grants_text(schema: str, role: str) -> str:
    """What a role needs that does not own the schema, to be copied: tests/bad_input/test_postgres_messages.py does."""
    place, user = name_text(schema), name_text(role)
    return (
        f"GRANT USAGE, CREATE ON SCHEMA {place} TO {user}; GRANT ALL ON ALL TABLES IN SCHEMA {place} TO {user}; "
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {place} TO {user};"
    )


def no_connection_left(connections_max: int = 0) -> str:
    """What to do when the server takes no more. 0: its limit is not known."""
    now = f" ({connections_max} now)" if connections_max else ""
    return (
        f"A process of perdure uses {POSTGRES_CONNECTIONS}; raise max_connections{now}, end sessions that nobody "
        "needs, or put a pooler before it. `perdure doctor` counts them."
    )


class Fault(Exception):
    """PostgreSQL refused a statement. `state` is the SQLSTATE; empty: the connection broke."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(message)
        self.state = state
        self.message = message

    @property
    def breaks_connection(self) -> bool:
        """Whether nothing more can be done on this connection."""
        return not self.state or self.state in _SESSION_OVER or self.state.startswith("08")

    @property
    def needs_new_connection(self) -> bool:
        """Whether repeating helps on another connection only: this one is gone, or what is prepared on it is stale."""
        return self.breaks_connection or self.state == _STALE_PLAN

    @property
    def is_of_statement(self) -> bool:
        """Whether the fault is in the statement or its values, and will be there again: not the store's."""
        return self.state[:2] in ("21", "22", "23", "42") and self.state not in _OF_THE_SCHEMA

    @property
    def is_of_departure(self) -> bool:
        """Whether the change was refused because this store goes, or has gone, to another one."""
        return self.state in _MOVED

    def explained(self, shown: str) -> StoreError | RunMoved:
        """For the caller, who may repeat the call after `StoreUnavailable`. `shown`: the store, without password."""
        if self.state in _MOVED:
            return refusals.moved(self.message, gone=_MOVED[self.state])
        said = f"{self.message} [{self.state}]" if self.state else self.message
        if self.state == "42501":
            location = parse(shown)
            grants = grants_text(location.schema, location.parameters.get("user", "the_user"))
            return StoreUnusable(f"{shown}: this user may not do that: {said}. Its owner can allow it: {grants}")
        if self.state in ("42P01", "3F000", "3D000", "42703"):
            return StoreUnusable(f"{shown}: what perdure keeps there is gone or was changed by somebody else: {said}.")
        if self.state == _READ_ONLY:
            return StoreUnavailable(
                f"{shown} takes no changes now: {said}. Is it a standby? Name all servers in the URL "
                "(host1,host2) and perdure finds the one that does."
            )
        if self.state == LOCK_NOT_AVAILABLE:
            return StoreUnavailable(
                f"{shown}: another transaction keeps a lock for too long ({said}). `perdure doctor` names the oldest "
                "transaction. The call may be repeated."
            )
        if self.state == "53300":
            return StoreUnavailable(f"{shown} has no connection left: {said}. {no_connection_left()}")
        if self.state in ("28P01", "28000"):
            return StoreUnusable(f"{shown} does not let this user in: {said}. Check user and password.")
        return StoreUnavailable(f"{shown} did not take the call: {said}.")
