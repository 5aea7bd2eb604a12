"""Sessions with PostgreSQL that are kept when a store closes, and given to the next store on the same schema.

A new one costs the server 3 ms, and the first use of each statement and each table in it as much again: more than all
the rest of most tests, which open two or three stores with five sessions each. What a kept session keeps is what the
server has prepared; its settings, locks, notifications and transaction are as after connecting, or it is not kept.

Only for schemas named in `schemas`, which those of `Lives` and of the store suite are. Real connections all the way
have the tests of the fleet, and everything in processes of its own.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg import pq

from perdure.store.postgres import batches
from perdure.store.postgres.connection import Connection
from perdure.store.postgres.server import Server
from perdure.store.postgres.url import Location

#: Of all processes of a test run together, and of one.
_ALL_MAX, _MAX = 240, 120
_PID = os.getpid()  # a forked child must not use what its parent has kept

#: Sessions of stores on these are kept.
schemas: set[str] = set()
#: How often `prepare_again` was called. Sessions that were open meanwhile are not kept.
_changes = 0


class _Kept(NamedTuple):
    session: Any
    prepared: Any
    decoders: Any
    names: set[bytes]


#: What a session was opened with; its schema and its name first.
_Key: TypeAlias = tuple[str, str, str, frozenset[tuple[str, str]]]

_kept: dict[_Key, list[_Kept]] = {}
_lock = threading.Lock()
_connect, _close, _prepare = Connection.__init__, Connection.close, Connection.prepare


def forget(schema: str) -> None:
    """End what is kept for a schema: it is dropped."""
    schemas.discard(schema)
    with _lock:
        gone = [key for key in _kept if key[0] == schema]
        ended = [one for key in gone for one in _kept.pop(key)]
    for one in ended:
        one.session.finish()


def prepare_again(texts: Mapping[str, str]) -> None:
    """From now on these statements have other texts: for mutants of the SQL."""
    global _changes
    _changes += 1
    with _lock:
        kept = [(key[0], one) for key, found in _kept.items() for one in found]
    for schema, one in kept:
        for sql, text in texts.items():
            lane = [name for name, its in batches.STATEMENTS.items() if its == sql and name in one.names]
            for name in [*lane, *([one.prepared[sql]] if sql in one.prepared else [])]:
                one.session.exec_(b'DEALLOCATE %b; SET search_path TO "%b"' % (name, schema.encode()))
                done = one.session.prepare(name, text.encode())
                if done.status != pq.ExecStatus.COMMAND_OK:
                    raise AssertionError(f"{done.error_message.decode()}: {text}")
                one.session.exec_(b"RESET search_path")


def _open(
    self: Any, location: Location, *, name: str = "", server: Server | None = None, standby: bool = False
) -> None:
    self._kept_as = (location.schema, name, location.prepare, frozenset(location.parameters.items()))
    self._kept_names = set()
    self._kept_changes = _changes
    while (one := _take(self._kept_as)) is not None:
        if _lives(one.session):
            break
        one.session.finish()
    else:
        _connect(self, location, name=name, server=server, standby=standby)
        return
    session, *rest = one
    self._adopt(location, session, server)
    self._prepared, self._decoders, self._kept_names = rest
    self.script("RESET application_name")
    self._get_to_know(standby)


def _take(key: _Key) -> _Kept | None:
    if key[0] not in schemas or os.getpid() != _PID:
        return None
    with _lock:
        of_this_kind = _kept.get(key)
        return of_this_kind.pop() if of_this_kind else None


def _lives(session: Any) -> bool:
    try:
        session.consume_input()
    except psycopg.Error:
        return False
    return bool(session.status == pq.ConnStatus.OK)


def _keep(self: Any) -> None:
    session = self._connection
    is_current = os.getpid() == _PID and self._kept_changes == _changes
    if self._location.schema not in schemas or not is_current or not _is_as_new(session, self._location.schema):
        _close(self)
        return
    session.notice_handler = None
    self._connection = _closed()
    self.generation = None  # it is not lost
    _close(self)
    one = _Kept(session, self._prepared, self._decoders, self._kept_names)
    with _lock:
        _kept.setdefault(self._kept_as, []).append(one)
        _kept[self._kept_as] = _kept.pop(self._kept_as)  # the one that was kept last
        ended = []
        if sum(map(len, _kept.values())) > min(_MAX, _ALL_MAX // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))):
            oldest = next(key for key, found in _kept.items() if found)
            ended.append(_kept[oldest].pop(0))
    for each in ended:
        each.session.finish()


def _is_as_new(session: Any, schema: str) -> bool:
    try:
        if session.status != pq.ConnStatus.OK:
            return False
        if session.pipeline_status != pq.PipelineStatus.OFF:
            session.exit_pipeline_mode()
        session.nonblocking = 0
        if session.transaction_status != pq.TransactionStatus.IDLE:
            return False
        # In its name, so that nobody takes the schema for one in use.
        script = f"UNLISTEN *; SELECT pg_advisory_unlock_all(); RESET ALL; SET application_name TO 'kept {schema}'"
        done = session.exec_(script.encode()).status == pq.ExecStatus.COMMAND_OK
        while session.notifies() is not None:
            pass
    except psycopg.Error:
        return False
    return bool(done)


@functools.cache
def _closed() -> Any:
    session = pq.PGconn.connect(b"not a connection string")
    session.finish()
    return session


def _prepare_once(self: Any, name: bytes, sql: str) -> None:
    if name not in self._kept_names:
        _prepare(self, name, sql)
        self._kept_names.add(name)


def install() -> None:
    if Connection.close is not _keep:  # once: others may have wrapped these since
        Connection.__init__, Connection.close, Connection.prepare = _open, _keep, _prepare_once  # type: ignore[method-assign]
