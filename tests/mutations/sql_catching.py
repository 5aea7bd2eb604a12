"""Whether a mutant of the SQL is caught: by the checks of the store suite and, on SQLite, by random lives beside the
memory store; in this process, on a disk in memory. What is particular to PostgreSQL: `sql_catching_postgres`.

Only the checks that execute the mutated statement can catch it, so the first thing is to see which do. Of those the
quick ones go first, and before them the one that caught the last mutant of the same statement.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import apsw
from _pytest import outcomes

from mutations.sql_equivalents import claims_of, parameters_of
from mutations.sql_mutants import Mutant
from perdure.store.memory import MemoryStore
from perdure.store.protocol import Store
from perdure.store.sqlite import SQLiteStore, session
from perdure.store.sqlite.queries import SQL
from perdure.testing.store import CHECKS, Check, Die, World, kit
from stores.fast_path import FAST_PATH
from stores.lives import Life, parts_of

#: A check that waits for something which does not come has failed. So much, and so many times what it takes without a
#: mutation: a busy machine must not look like a caught mutant.
_PATIENCE_SECONDS, _PATIENCE_FACTOR = 4.0, 20.0
#: Lives that are looked into for each mutant, and calls in each.
LIVES, _CALLS = 24, 150


def _live(world: World, seed: int) -> None:
    async def check(store: Store) -> None:
        with parts_of(2):
            await Life(MemoryStore(), store, seed).live(_CALLS)

    world.run(check)


#: What the store suite checks, what only SQLite promises, and random lives.
ALL = [*CHECKS, *FAST_PATH, *[Check(f"life-{seed}", _live, (seed,)) for seed in range(LIVES)]]


class Statements:
    """What a store executes instead of what it is told, and what it was told. Without a mutation also which of the
    reasons did not hold for which some mutants are equivalent."""

    def __init__(self, sql: Mapping[str, str], mutant: Mutant | None = None) -> None:
        self._names = {text: name for name, text in sql.items()}
        #: Texts of statements, and what they are changed to.
        self.changed = {} if mutant is None else {sql[mutant.statement]: mutant.text}
        #: Whether anything is mutated.
        self.is_mutated = mutant is not None
        self.executed: set[str] = set()
        self.broken: list[str] = []

    def note(self, text: str) -> str:
        """It is executed now. Returns its name; empty for what is none of the statements."""
        name = self._names.get(text, "")
        self.executed.add(name)
        return name

    def instead_of(self, text: str) -> str:
        return self.changed.get(text, text)


class Backend(Protocol):
    """A kind of store whose SQL can be mutated."""

    sql: Mapping[str, str]
    die: Die | None

    def in_place(self, statements: Statements) -> AbstractContextManager[None]:
        """For as long as the block lasts stores execute these."""
        ...

    def store(self, directory: Path) -> Store: ...

    def forget(self, directory: Path) -> None:
        """Nobody needs the data of this directory any more."""
        ...

    def close(self) -> None: ...


class SQLiteBackend:
    sql = SQL
    die: Die | None = None

    def __init__(self) -> None:
        self._directory = temporary_directory()
        self._template = self._directory / "template.db"
        asyncio.run(self._make_template())
        self._claims = {SQL[name]: list(claims_of(name)) for name in SQL}

    async def _make_template(self) -> None:
        """A file with the schema, so that not every world has to make one."""
        store = SQLiteStore(self._template)
        await store.open()
        await store.close()

    @contextmanager
    def in_place(self, statements: Statements) -> Iterator[None]:
        before = session.Session
        session.Session = self._session_class(statements)  # type: ignore[misc]
        try:
            yield
        finally:
            session.Session = before  # type: ignore[misc]

    def _session_class(self, statements: Statements) -> type:
        claims = {} if statements.is_mutated else self._claims

        def instead_of(text: str, connection: apsw.Connection, parameters: Sequence[Sequence[Any]]) -> str:
            name = statements.note(text)
            for claim in claims.get(text, ()):
                for each in parameters:
                    found = connection.execute(claim, each[: parameters_of(claim)]).fetchall()
                    if found and found[0][0] == 0:
                        statements.broken.append(f"{name}: {claim}")
            return statements.instead_of(text)

        class Session(session.Session):
            __slots__ = ()

            def __init__(self, connection: apsw.Connection) -> None:
                super().__init__(connection)
                execute, executemany = self.execute, self.executemany

                def instead(sql: str, *many: Any) -> str:
                    return instead_of(sql, connection, many)

                self.execute = lambda sql, parameters=(): execute(instead(sql, parameters), parameters)
                self.executemany = lambda sql, many: executemany(instead(sql, *many), many)

            def rows(self, sql: str, parameters: Any = ()) -> Any:
                return super().rows(instead_of(sql, self.connection, [parameters]), parameters)

            def row(self, sql: str, parameters: Any = ()) -> Any:
                return super().row(instead_of(sql, self.connection, [parameters]), parameters)

        return Session

    def store(self, directory: Path) -> SQLiteStore:
        path = directory / "store.db"
        if not path.exists():
            shutil.copyfile(self._template, path)
            path.chmod(0o600)
        return SQLiteStore(path)

    def forget(self, directory: Path) -> None:
        """Its files are in it."""

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def temporary_directory() -> Path:
    root = "/dev/shm" if os.path.isdir("/dev/shm") else None
    return Path(tempfile.mkdtemp(prefix="perdure-mutants-", dir=root))


@contextmanager
def _quiet(patience: float) -> Iterator[None]:
    before = kit._PATIENCE_SECONDS, logging.root.manager.disable
    kit._PATIENCE_SECONDS = patience
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        kit._PATIENCE_SECONDS = before[0]
        logging.disable(before[1])


class Catcher:
    """Runs checks on a store whose SQL is mutated."""

    def __init__(self, checks: Sequence[Check] = ALL, backend: Backend | None = None) -> None:
        self._checks = checks
        self._backend = backend or SQLiteBackend()
        self._directory = temporary_directory()
        self._worlds = 0
        #: The checks that execute a statement, the quickest first.
        self._seconds: dict[str, float] = {}
        self.checks_of: Mapping[str, list[Check]] = self._look()

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        self._backend.close()

    def caught_by(self, mutant: Mutant) -> Check | None:
        """The first check that fails with it, and passes without it: not for another reason."""
        checks = self.checks_of.get(mutant.statement, [])
        for place, check in enumerate(checks):
            if self._passes(check, Statements(self._backend.sql, mutant)):
                continue
            if not self._passes(check, Statements(self._backend.sql)):
                raise AssertionError(f"{check.id} fails after the mutant {mutant.id}, also without it")
            checks.insert(0, checks.pop(place))
            return check
        return None

    def _look(self) -> Mapping[str, list[Check]]:
        found: dict[str, list[tuple[float, int, Check]]] = {}
        for number, check in enumerate(self._checks):
            statements, began = Statements(self._backend.sql), time.perf_counter()
            if not self._passes(check, statements):
                raise AssertionError(f"{check.id} fails without any mutation")
            if statements.broken:
                raise AssertionError(f"a reason for an equivalent mutant does not hold: {statements.broken[0]}")
            self._seconds[check.id] = seconds = time.perf_counter() - began
            for name in statements.executed:
                # A trigger is made with every connection, and fires with the statement that it is named after.
                found.setdefault(name, []).append((seconds, number, check))
        triggers = [name for name in self._backend.sql if name.endswith("_trigger")]
        found |= {name: found.get(name.removesuffix("_trigger"), []) for name in triggers}
        return {name: [check for _, _, check in sorted(its)] for name, its in found.items()}

    def _passes(self, check: Check, statements: Statements) -> bool:
        self._worlds += 1
        directory = self._directory / str(self._worlds)
        directory.mkdir()
        patience = max(_PATIENCE_SECONDS, _PATIENCE_FACTOR * self._seconds.get(check.id, 1.0))
        with _quiet(patience), self._backend.in_place(statements):
            try:
                check(World(self._backend.store, directory, self._backend.die))
            except (Exception, outcomes.OutcomeException):
                return False
            finally:
                self._backend.forget(directory)
                shutil.rmtree(directory, ignore_errors=True)
        return True


def prepares(mutant: Mutant, connection: apsw.Connection) -> bool:
    """Whether it is SQL at all: one that is not would be caught by anything."""
    try:
        connection.execute("EXPLAIN " + mutant.text.replace("CREATE TEMP TRIGGER ", "CREATE TEMP TRIGGER mutant_", 1))
    except apsw.BindingsError:
        return True
    except apsw.SQLError:
        return False
    return True
