"""What is wrong about a PostgreSQL server, and what somebody reads then: what happened, where, what to do, never a
password. Real servers: the one of the tests, and one of this module's own that it may fill, stop and turn read-only."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from perdure import Engine, event, receive, step, workflow
from perdure.errors import EngineNotOpen, PerdureError, SchemaTooNew, SchemaTooOld, StoreUnavailable, StoreUnusable
from perdure.store.postgres import PostgresStore, connection, migrate
from support.lives import run_async, until
from support.own_server import OwnServer
from support.postgres import server
from support.processes import Process

ODD = "a!b@c$d()e*_,/:;=?@ff[]22"
PASSWORD = "hunter2-is-secret"


@event
@dataclass
class PgMessageGoOn:
    pass


@step
async def doubled_there(number: int) -> int:
    return 2 * number


@workflow
async def doubles_there(number: int) -> int:
    return await doubled_there(number)


@workflow
async def doubles_later(number: int) -> int:
    await receive(PgMessageGoOn)
    return await doubled_there(number)


@pytest.fixture(scope="module")
def own() -> Iterator[OwnServer]:
    with OwnServer("max_connections = 20\nsuperuser_reserved_connections = 2\n") as started:
        yield started


def opening(url: str, **options: Any) -> str:
    """What is said when a store is opened."""

    async def main() -> None:
        store = PostgresStore(url, **options)
        try:
            await store.open()
        finally:
            await store.close()

    with pytest.raises(PerdureError) as caught:
        run_async(main())
    said = str(caught.value)
    assert PASSWORD not in said
    assert said.endswith(f"[{caught.value.code}]")
    opening.last = caught.value  # type: ignore[attr-defined]
    return said


def kind() -> type:
    return type(opening.last)  # type: ignore[attr-defined]


def runs_a_workflow(url: str) -> None:
    async def main() -> None:
        async with Engine(url, sweep_interval=0.1) as engine:
            assert await (await engine.start(doubles_there(21))).result() == 42

    run_async(main())


@contextlib.contextmanager
def role(own: OwnServer, password: str = PASSWORD, options: str = "") -> Generator[str]:
    """An ordinary user, with a password that the server asks for."""
    name = f"r_{secrets.token_hex(4)}"
    own.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}' {options}")
    yield name
    with own.connect(autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", (name,))
        admin.execute(f"DROP OWNED BY {name} CASCADE")
        admin.execute(f"DROP ROLE {name}")


@contextlib.contextmanager
def asks_for_passwords(own: OwnServer) -> Generator[None]:
    access = own.data / "pg_hba.conf"
    before = access.read_text()
    access.write_text("host all admin 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    own.execute("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        access.write_text(before)
        own.execute("SELECT pg_reload_conf()")


def with_password(own: OwnServer, user: str, password: str, **options: str) -> str:
    return own.url(user, **options).replace(f"{user}@", f"{user}:{password}@")


# -- getting in ------------------------------------------------------------------------------------------


def test_a_password_with_every_odd_character_works_encoded_and_raw(own: OwnServer) -> None:
    """Raw, because it can be read in one way only; what cannot is refused (test_postgres_input.py)."""
    with asks_for_passwords(own), role(own, ODD) as user:
        own.execute(f"GRANT CREATE ON DATABASE postgres TO {user}")
        runs_a_workflow(with_password(own, user, quote(ODD, safe=""), schema=user))
        runs_a_workflow(with_password(own, user, ODD, schema=user))
        with pytest.raises(StoreUnusable, match="password authentication failed"):
            runs_a_workflow(with_password(own, user, quote(ODD[:-1], safe=""), schema=user))


def test_a_wrong_password_is_said_and_not_shown(own: OwnServer) -> None:
    with asks_for_passwords(own), role(own) as user:
        said = opening(with_password(own, user, f"{PASSWORD}-and-wrong"))
        assert kind() is StoreUnusable
        assert f'password authentication failed for user "{user}"' in said
        assert "Check user and password" in said
        said = opening(own.url(user))
        assert "Give the password in the URL, in PGPASSWORD or in ~/.pgpass" in said


def test_a_missing_database(own: OwnServer) -> None:
    said = opening(own.url(database="nowhere"))
    assert kind() is StoreUnusable
    assert 'database "nowhere" does not exist' in said
    assert "Create it, or name another one in the URL" in said


def test_a_wrong_sslmode_of_the_environment(own: OwnServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not come from the URL, so that only libpq notices."""
    monkeypatch.setenv("PGSSLMODE", "requird")
    said = opening(f"postgresql://admin@{own.address}/postgres")
    assert kind() is StoreUnusable
    assert "requird" in said
    assert "It is one of disable, allow, prefer, require, verify-ca, verify-full" in said


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_one_of_several_hosts_is_enough(own: OwnServer) -> None:
    runs_a_workflow(own.url(schema="several").replace("@", f"@127.0.0.1:{closed_port()},"))


def test_no_host_at_all() -> None:
    said = opening(f"postgresql://me:{PASSWORD}@127.0.0.1:{closed_port()},127.0.0.1:{closed_port()}/shop")
    assert kind() is StoreUnavailable
    assert "cannot be reached" in said
    assert "Connection refused" in said


def test_a_server_that_is_too_old(own: OwnServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number that the server says: with the bound above it."""
    monkeypatch.setattr(connection, "OLDEST_SERVER", 990000)
    said = opening(own.url())
    assert kind() is StoreUnusable
    assert "is PostgreSQL 18; perdure needs 99 or newer. Upgrade the server" in said


def test_a_database_that_does_not_hold_every_character(own: OwnServer) -> None:
    own.execute("CREATE DATABASE ascii_only ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'")
    said = opening(own.url(database="ascii_only"))
    assert kind() is StoreUnusable
    assert "stores texts as SQL_ASCII. Use a database with ENCODING 'UTF8'" in said


# -- schemas ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", ['O"Brien', "Orders", "two words", "a;b--", "ünï"])
def test_schemas_of_any_name_are_used_as_they_are_written(own: OwnServer, schema: str) -> None:
    """Quotes and capitals are part of the name, and it is that schema and no other."""
    runs_a_workflow(own.url(schema=quote(schema, safe="")))
    found = own.execute(
        "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relname = 'perdure_schema' AND n.nspname = %(name)s",
        {"name": schema},
    ).fetchall()
    assert found == [(schema,)]


@pytest.mark.parametrize(("number", "expected", "texts"), [
    (99, SchemaTooNew, ("is schema 99; this perdure understands up to", "Upgrade perdure")),
    (0, SchemaTooOld, ("is schema", "this perdure works with", "--migrate")),
])  # fmt: skip
def test_a_schema_of_another_release(
    own: OwnServer, number: int, expected: type, texts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"release_{number}"
    runs_a_workflow(own.url(schema=name))
    if number:
        own.execute(f"UPDATE {name}.perdure_schema SET number = {number}")
    else:  # there is no older one yet: this release is made the next one
        monkeypatch.setattr(migrate, "MIGRATIONS", (*migrate.MIGRATIONS, (migrate.newest() + 1, "SELECT 1")))
    said = opening(own.url(schema=name), migrate=False)
    assert kind() is expected
    assert [text for text in texts if text not in said] == [], said


@pytest.mark.parametrize("missing", ["the database", "the schema", "using it", "a table"])
def test_a_missing_privilege_is_named_with_the_grant_that_is_enough(own: OwnServer, missing: str) -> None:
    """What the message says is done, word for word, and then it works."""
    with role(own) as user:
        name = f"grants_{user}"
        if missing in ("using it", "a table"):
            runs_a_workflow(own.url(schema=name))
        elif missing == "the schema":
            own.execute(f"CREATE SCHEMA {name}; GRANT USAGE ON SCHEMA {name} TO {user}")
        if missing == "a table":
            own.execute(f"GRANT USAGE ON SCHEMA {name} TO {user}")
        said = opening(own.url(user, schema=name))
        assert kind() is StoreUnusable
        if missing == "the database":
            assert f'CREATE SCHEMA "{name}" AUTHORIZATION' in said
            own.execute(f"GRANT CREATE ON DATABASE postgres TO {user}")
            assert "GRANT CREATE ON DATABASE the_database TO the_user" in said
        else:
            grants = said[said.index("GRANT ") :].removesuffix(" [P-302]")
            assert grants.count(user) >= 3
            own.execute(grants)
        runs_a_workflow(own.url(user, schema=name))


def test_a_table_of_somebody_else(own: OwnServer) -> None:
    own.execute("CREATE SCHEMA foreign_one; CREATE TABLE foreign_one.runs (x int)")
    said = opening(own.url(schema="foreign_one"))
    assert kind() is StoreUnusable
    assert "has a table `runs` of another program. Name another schema: ?schema=..." in said


@pytest.mark.parametrize("user", ["admin", "another user"])
def test_a_migration_that_somebody_keeps_locked(own: OwnServer, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a session that does nothing any more, its process dead or asleep: said after a while, with who it is; of
    another user's session that is all that a role may see."""
    monkeypatch.setattr(migrate, "_LOCK_SECONDS", 0.2)
    with own.connect(application_name="deploy 7") as holder, role(own) as other:
        holder.execute("SELECT pg_advisory_xact_lock(hashtext('perdure migration'), hashtext('locked_one'))")
        own.execute(f"GRANT CREATE ON DATABASE postgres TO {other}")
        said = opening(own.url("admin" if user == "admin" else other, schema="locked_one"))
        assert kind() is StoreUnusable
        assert f"session {holder.info.backend_pid} 'deploy 7' of user 'admin'" in said
        assert ("idle in transaction" in said) is (user == "admin")
        assert "end that session: SELECT pg_terminate_backend(" in said
        holder.rollback()
        runs_a_workflow(own.url(other, schema="locked_one"))


def test_a_schema_is_made_where_the_url_says_also_behind_a_pooler(own: OwnServer) -> None:
    """Where settings belong to a transaction, of migrating too: before, the tables were made in `public`."""
    runs_a_workflow(own.url(schema="pooled_one", prepare="off"))
    found = own.execute(
        "SELECT schemaname FROM pg_tables WHERE tablename = 'runs' AND schemaname IN ('public', 'pooled_one')"
    )
    assert found.fetchall() == [("pooled_one",)]


# -- while it works --------------------------------------------------------------------------------------


def said_in(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], bool]:
    return lambda: any(text in record.getMessage() for record in caplog.records)


async def fill(own: OwnServer, taken: contextlib.ExitStack) -> None:
    """Take every connection of the server, those too that sessions of earlier tests leave behind as they end."""
    refused = 0
    while refused < 30:
        try:
            taken.callback(own.connect().close)
            refused = 0
        except psycopg.OperationalError:
            refused += 1
            await asyncio.sleep(0.01)


def test_no_connection_left_names_the_limit_and_what_a_process_needs(own: OwnServer) -> None:
    """FAULTS B21: of the server (when it is known, with its number), and of a role."""
    own.execute("CREATE SCHEMA full_one")
    with role(own) as user, contextlib.ExitStack() as taken:
        own.execute(f"GRANT ALL ON SCHEMA full_one TO {user}")

        async def main() -> None:
            store = PostgresStore(own.url(user, schema="full_one"))
            await store.open()
            try:
                await fill(own, taken)
                with pytest.raises(StoreUnavailable) as caught:
                    await store.count_runs()
                said = str(caught.value)
                assert "has no connection left" in said
                assert "A process of perdure uses 5; raise max_connections (20 now)" in said
                taken.close()
                assert await store.count_runs() == {}
            finally:
                taken.close()
                await store.close()

        run_async(main())
    with role(own, options="CONNECTION LIMIT 0") as user:
        said = opening(own.url(user))
        assert kind() is StoreUnavailable
        assert "too many connections for role" in said
        assert "A process of perdure uses 5; raise max_connections, end sessions" in said


def test_the_database_is_dropped_while_a_worker_runs(own: OwnServer, caplog: pytest.LogCaptureFixture) -> None:
    """The worker says so at once and goes on asking, for the database may come back from a backup; calls say the same.
    When it is back the worker goes on, and closing ends in bounded time either way."""

    async def main() -> None:
        own.execute("CREATE DATABASE dropped_one")
        own.execute("CREATE DATABASE kept_copy")
        url = own.url(database="dropped_one")
        async with Engine(url, sweep_interval=0.1, lease=2) as engine:
            await engine.start(doubles_later(4), id="run")
            await until(lambda: waits(engine))
            own.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = 'dropped_one'")
            await rename(own, "dropped_one", "put_away")
            await until(said_in(caplog, 'database "dropped_one" does not exist'))
            with pytest.raises(StoreUnusable, match=r'database "dropped_one" does not exist.*Create it'):
                await engine.list()
            assert not engine.lost.is_set()
            await rename(own, "put_away", "dropped_one")
            await until(lambda: answers(engine))
            await engine.send("run", PgMessageGoOn())
            assert await engine.result("run", timeout=20) == 8
            await rename(own, "dropped_one", "put_away")
            with contextlib.suppress(StoreUnusable, StoreUnavailable):
                await engine.close(0.1)

    run_async(main(), patience=60)
    lines = [record for record in caplog.records if "did not answer" in record.getMessage()]
    assert 0 < len(lines) < 10, "said, and not at every try"
    assert all(record.levelno >= logging.WARNING for record in lines)


async def rename(own: OwnServer, name: str, other: str) -> None:
    """As dropped, and restored: nobody can be in it meanwhile."""

    def change() -> None:
        with own.connect(autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (name,))
            admin.execute(f"ALTER DATABASE {name} RENAME TO {other}")
            admin.execute(f"ALTER DATABASE {other} ALLOW_CONNECTIONS true")

    await asyncio.to_thread(change)


async def waits(engine: Engine) -> bool:
    return (await engine.status("run")).status == "waiting"


async def answers(engine: Engine) -> bool:
    try:
        await engine.list()
    except PerdureError:
        return False
    return True


def test_two_engines_on_one_schema_share_its_runs(own: OwnServer) -> None:
    """Also of two applications, which know different workflows: each takes its own, and each run is run once."""

    async def main() -> None:
        url = own.url(schema="shared_one")
        async with Engine(url, sweep_interval=0.1) as one, Engine(url, sweep_interval=0.1) as two:
            handles = [await (one if n % 2 else two).start(doubles_there(n), id=f"r{n}") for n in range(20)]
            assert [await handle.result() for handle in handles] == [2 * n for n in range(20)]
            for n in range(20):
                kinds = [record.kind for record in await two.admin.history(f"r{n}")]
                assert kinds == ["started", "step_done", "completed"]

    run_async(main())


def test_a_forked_child_is_told_to_open_its_own() -> None:
    """FAULTS C11: every call is refused in the child, and the parent goes on with its connections."""
    with Process("lifecycle.script_children:forks", server().url(server().fresh_schema())) as process:
        for _ in range(3):
            process.expect("EngineNotOpen")
        assert process.line() in {"closed", "close raised EngineNotOpen"}
        process.expect("done")
        assert process.wait() == 0


def test_a_store_that_is_not_open_says_so() -> None:
    async def main() -> None:
        store = PostgresStore(f"postgresql://me:{PASSWORD}@nowhere/shop")
        with pytest.raises(EngineNotOpen, match="is not open") as caught:
            await store.get("run")
        assert PASSWORD not in str(caught.value)

    run_async(main())


# -- a server that takes no changes: the last test, for the server stays like that --------------------------


def test_a_standby_alone_is_refused_with_what_to_name(own: OwnServer) -> None:
    """FAULTS B19: also as the only one of several; it is no reason to give up for good, for a failover may be under
    way."""
    own.become_standby()
    said = opening(own.url(schema="several"))
    assert kind() is StoreUnavailable
    assert "is a standby, which takes no changes. Name all servers in the URL (host1,host2)" in said
    said = opening(own.url(schema="several").replace("@", f"@127.0.0.1:{closed_port()},"))
    assert kind() is StoreUnavailable
    assert "takes changes now" in said
    assert "Name the primary, too" in said
