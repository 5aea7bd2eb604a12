"""A transaction on a connection: what `store.sql` works on, with the locks of `locks.py`.

One thread uses it. A statement that finds a lock taken raises `Relock`, with the plan made larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from perdure.store.model import RunKey
from perdure.store.postgres.connection import Connection
from perdure.store.postgres.faults import LOCK_NOT_AVAILABLE, Fault
from perdure.store.postgres.locks import Plan, Relock
from perdure.store.postgres.queries import SQL
from perdure.store.postgres.server import Server
from perdure.store.postgres.url import Location
from perdure.store.postgres.values import blobs
from perdure.store.sql.rows import Values

T = TypeVar("T")

#: How a run is found that a statement wanted to lock: the set of the plan that its first parameter belongs to.
_WANTED: dict[str, str] = {
    SQL["receiver_by_id"]: "ids",
    SQL["receiver_by_key"]: "keys",
    SQL["open_children"]: "children_of",
}
#: Statements that change something and answer with rows.
_WRITING = frozenset(text for text in SQL.values() if not text.startswith(("SELECT", "(SELECT")))


#: How many rows go into one statement.
_ROWS_AT_ONCE = 2_000


def _column(values: Sequence[Any]) -> Any:
    """A column of rows as an array: one of bytes goes as it is, without being escaped."""
    return blobs(values) if any(type(value) is bytes for value in values) else list(values)


class Session:
    """See the module docstring. `begin` and `commit` are called around the functions of `store.sql`."""

    sql: ClassVar[Mapping[str, str]] = SQL
    #: `list_by_prefix` looks for NULL.
    after_all_text: ClassVar[bytes | None] = None

    def __init__(self, location: Location, *, name: str = "", server: Server | None = None) -> None:
        self.location = location
        self.connection = Connection(location, name=name, server=server)
        self.changed = False
        self._plan = Plan()
        self._types: dict[str, bool] = {}
        self._runs: set[RunKey] = set()
        self._known_types: set[str] = set()
        self._known_definitions: set[tuple[str, str]] = set()

    # -- the transaction ---------------------------------------------------------------------------------

    def begin(self, plan: Plan) -> None:
        """Begin, with everything locked that is planned."""
        self._learn(plan.definitions)
        self._plan, self.changed = plan, False
        self._types.clear()
        self._runs.clear()
        self.connection.begin()
        self._lock_planned_types(plan)
        keys = set(plan.keys)
        if plan.children_of:
            for parent in plan.children_of:
                keys.update(key for (key,) in self.rows(SQL["children_of_run"], (parent,)))
        if keys or plan.ids or plan.parents_of:
            locked = self.connection.rows(SQL["lock_runs"], (sorted(keys), sorted(plan.ids), sorted(plan.parents_of)))
            self._runs.update(key for (key,) in locked)

    def commit(self) -> None:
        self.connection.not_replicated = False
        self.connection.script("COMMIT")

    def rollback(self) -> None:
        """Back to no transaction, if the connection still lives."""
        if not self.connection.is_broken and self.connection.is_in_transaction:
            self.connection.script("ROLLBACK")

    def _learn(self, definitions: set[tuple[str, str]]) -> None:
        """Give numbers to workflows and versions, in a transaction of its own: nobody waits for ours because of it."""
        new = sorted(definitions - self._known_definitions)
        if new:
            self.connection.run(SQL["add_definitions"], ([one for one, _ in new], [version for _, version in new]))
            self._known_definitions.update(new)

    # -- statements --------------------------------------------------------------------------------------

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        self.change(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> None:
        for each in parameters:
            self.change(sql, each)

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        result = self.connection.run(sql, parameters)
        count = result.command_tuples or 0
        if count:
            self.changed = True
        return count

    def change_many(self, sql: str, parameters: Iterable[Sequence[Any]]) -> int:
        return sum([self.change(sql, each) for each in parameters])

    def add_all(self, sql: str, rows: Sequence[Values]) -> None:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            self.change(sql, [_column(values) for values in zip(*rows[start : start + _ROWS_AT_ONCE], strict=True)])

    def insert(self, sql: str, parameters: Sequence[Any]) -> int | None:
        number: int | None = self.value(sql, parameters)
        return number

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Values]:
        try:
            found = self.connection.rows(sql, parameters)
            self.changed = self.changed or (bool(found) and sql in _WRITING)
            return found
        except Fault as fault:
            wanted = _WANTED.get(sql)
            if fault.state != LOCK_NOT_AVAILABLE or wanted is None:
                raise
            getattr(self._plan, wanted).add(parameters[0])
            raise Relock from None

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> Values | None:
        found = self.rows(sql, parameters)
        return found[0] if found else None

    def value(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        found = self.rows(sql, parameters)
        return found[0][0] if found else None

    def snapshot(self, read: Callable[[], T]) -> T:
        """Several reads of one state."""
        self.connection.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            return read()
        finally:
            if not self.connection.is_broken:
                self.connection.script("ROLLBACK")

    # -- locks -------------------------------------------------------------------------------------------

    def _lock_planned_types(self, plan: Plan) -> None:
        waited = set(plan.waited)
        if plan.types_of:
            waited.update(kind for (kind,) in self.rows(SQL["types_of_runs"], (sorted(plan.types_of),)))
        waited -= plan.types
        wanted = sorted(waited | plan.types)
        if not wanted:
            return
        new = [kind for kind in wanted if kind not in self._known_types]
        if new:
            self.connection.run(SQL["add_types"], (new,))
        # By name. One statement where one kind of lock is wanted, which is nearly always.
        if not plan.types or not waited:
            name = "lock_types" if plan.types else "lock_types_shared"
            found = self.connection.rows(SQL[name], (wanted,))
        else:
            found = []
            for kind in wanted:
                name = "lock_types" if kind in plan.types else "lock_types_shared"
                found += self.connection.rows(SQL[name], ([kind],))
        if len(found) < len(wanted):  # known from a transaction that was rolled back
            self._known_types.clear()
            raise Relock
        self._known_types.update(wanted)
        self._types.update((kind, kind in plan.types) for kind in wanted)

    def lock_type(self, kind: str) -> None:
        if not self._types.get(kind, False):
            self._lock_type_now(kind, "lock_type_now", self._plan.types)
            self._types[kind] = True

    def lock_type_to_wait(self, kind: str) -> None:
        if kind not in self._types:
            self._lock_type_now(kind, "lock_type_shared_now", self._plan.waited)
            self._types[kind] = False

    def _lock_type_now(self, kind: str, name: str, planned: set[str]) -> None:
        try:
            if kind in self._known_types and self.connection.rows(SQL[name], (kind,)):
                return
        except Fault as fault:
            if fault.state != LOCK_NOT_AVAILABLE:
                raise
        planned.add(kind)
        raise Relock

    def lock_runs(self, keys: Sequence[RunKey]) -> None:
        wanted = [key for key in keys if key not in self._runs]
        if not wanted:
            return
        try:
            self.connection.rows(SQL["lock_runs_now"], (wanted,))
        except Fault as fault:
            if fault.state != LOCK_NOT_AVAILABLE:
                raise
            self._plan.keys.update(wanted)
            raise Relock from None
        self._runs.update(wanted)

    def close(self) -> None:
        self.connection.close()
