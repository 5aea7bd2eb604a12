"""`perdure doctor` on PostgreSQL: it names what is wrong, to a user who may only read, soon, and without writing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Generator, Iterator
from typing import Any

import psycopg
import pytest

from cli.cli_kit import invoke
from fleet.work import GoOn, fleet_engine, two_notes
from perdure import limits
from perdure.admin.admin import Admin
from perdure.admin.doctor import Diagnosis
from perdure.store import open_store
from perdure.store.health import Finding, Level
from perdure.store.postgres import PostgresStore, health_vacuum
from support.effects import Effects
from support.lives import run_async, until
from support.own_server import OwnServer
from support.postgres import has_pooler, server


@pytest.fixture
def schema() -> str:
    return server().fresh_schema()


@pytest.fixture(scope="module")
def own() -> Iterator[OwnServer]:
    """With all that the doctor has to say something about, and durable."""
    settings = "max_connections = 30\nmax_prepared_transactions = 5\nwal_level = replica\nfsync = on\n"
    with OwnServer(settings) as started:
        made(started.url(schema="work"))
        yield started


def made(url: str) -> None:
    async def main() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.close()

    run_async(main())


def diagnosis(url: str) -> Diagnosis:
    return run_async(Admin(open_store(url)).doctor())


def found(url: str, check: str) -> Finding:
    """The one finding of a check."""
    (one,) = [finding for finding in diagnosis(url).findings if finding.check == check]
    return one


def as_admin(schema: str, application: str = "") -> str:
    return server().url(schema).replace(server().base_url, server().admin_url)


@contextlib.contextmanager
def old_snapshot(transactions: int, application: str) -> Generator[Any]:
    """A transaction that somebody forgot, and so many that have begun since."""
    with psycopg.connect(server().admin_url, application_name=application) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM pg_class")
        server().execute(
            f"DO $$ BEGIN FOR i IN 1..{transactions} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
        )
        yield holder


# -- what holds back vacuum ------------------------------------------------------------------------------


def test_the_transaction_that_holds_back_vacuum_is_named(schema: str) -> None:
    """FAULTS B22: under an old snapshot: who has it, since when, how many transactions began since, and how it is
    ended. When it is, all is well again."""
    with old_snapshot(60_000, "monthly report") as holder:
        one = found(as_admin(schema), "oldest-transaction")
        assert one.level is Level.ATTENTION
        assert f"session {holder.info.backend_pid} 'monthly report' of user 'admin' from 127.0.0.1" in one.text
        assert "idle in transaction, since " in one.text
        assert "no vacuum removes" in one.text
        assert one.figures["passed"] >= 60_000
        assert f"SELECT pg_terminate_backend({holder.info.backend_pid});" in one.advice
    assert found(as_admin(schema), "oldest-transaction").figures.get("application") != "monthly report"


def test_an_ordinary_role_is_told_who_it_is_and_what_would_show_more(schema: str) -> None:
    """Of another user's session PostgreSQL shows a role that is nothing special neither state nor beginning."""
    with old_snapshot(60_000, "yearly report") as holder:
        one = found(server().url(schema), "oldest-transaction")
        assert one.level is Level.ATTENTION
        assert f"session {holder.info.backend_pid} 'yearly report' of user 'admin'" in one.text
        assert "since when is hidden from this role" in one.text
        assert "GRANT pg_read_all_stats TO perdure;" in one.advice


def test_a_young_transaction_is_named_and_is_all_right(schema: str) -> None:
    with old_snapshot(3, "short report"):
        one = found(as_admin(schema), "oldest-transaction")
        assert one.level is Level.OK


def test_a_session_that_is_idle_in_a_transaction_is_named(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_vacuum, "IDLE_SECONDS", 0.0)
    with psycopg.connect(server().admin_url, application_name="forgotten psql") as holder:
        holder.execute("SELECT 1")
        one = found(as_admin(schema), "idle-transactions")
        assert one.level is Level.ATTENTION
        assert "'forgotten psql' of user 'admin' from 127.0.0.1 (idle in transaction)" in one.text
        assert "ALTER ROLE admin SET idle_in_transaction_session_timeout" in one.advice


def test_a_prepared_transaction_is_named(own: OwnServer) -> None:
    """It has no session, and outlives every restart."""
    with own.connect() as connection:
        connection.execute("CREATE TABLE prepared_one (x int)")
        connection.execute("PREPARE TRANSACTION 'order''s half'")
    own.execute("DO $$ BEGIN FOR i IN 1..60000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")
    one = found(own.url(schema="work"), "oldest-transaction")
    assert one.level is Level.ATTENTION
    assert "the prepared transaction \"order's half\" of user 'admin', since " in one.text
    assert "ROLLBACK PREPARED 'order''s half';" in one.advice
    own.execute("ROLLBACK PREPARED 'order''s half'")


@pytest.mark.parametrize(
    ("seconds", "passed", "level"),
    [(10, 10, Level.OK), (301, 10, Level.ATTENTION), (3_601, 10, Level.PROBLEM), (None, 49_999, Level.OK),
     (None, 50_000, Level.ATTENTION), (10, 1_000_000, Level.PROBLEM)],
)  # fmt: skip
def test_how_old_is_too_old(seconds: int | None, passed: int, level: Level) -> None:
    row = ("session", "7", "ann", "psql", "", "active", seconds, None, passed)
    assert health_vacuum.oldest_transaction([row], "me").level is level


def test_a_slot_that_holds_back_vacuum_is_named() -> None:
    one = health_vacuum.oldest_transaction([("slot", "old'st", "", "", "", "inactive", None, None, 70_000)], "me")
    assert 'the inactive replication slot "old\'st"' in one.text
    assert "pg_drop_replication_slot('old''st')" in one.advice


def test_dead_rows_and_a_server_without_autovacuum(schema: str) -> None:
    """The servers of these tests have none."""
    server().execute(f"INSERT INTO \"{schema}\".replies SELECT i::text, '', 0 FROM generate_series(1, 30000) i")
    server().execute(f'DELETE FROM "{schema}".replies WHERE request::int % 10 > 0')
    server().execute("SELECT pg_stat_force_next_flush()")
    one = found(server().url(schema), "dead-rows")
    assert one.level is Level.ATTENTION
    assert (one.figures["table"], one.figures["dead"], one.figures["live"]) == ("replies", 27_000, 3_000)
    assert f"VACUUM {schema}.replies;" in one.advice
    one = found(server().url(schema), "autovacuum")
    assert (one.level, "autovacuum = on" in one.advice) == (Level.PROBLEM, True)


# -- the server ------------------------------------------------------------------------------------------


def test_a_server_where_all_is_well(own: OwnServer) -> None:
    """Exit code 0, and a figure for each check."""
    result = invoke("doctor", "--json", "--store", own.url(schema="work"))
    told = {one["check"]: one for one in json.loads(result.stdout)["findings"]}
    assert result.exit_code == 0, result.output
    assert list(told) == [
        "server", "encoding", "schema", "privileges", "clock", "pooler", "push", "durability", "replication",
        "replication-slots", "connections", "oldest-transaction", "idle-transactions", "autovacuum",
        "transaction-numbers", "dead-rows", "disk", "workers", "runs", "parked", "due", "dead-letters",
    ]  # fmt: skip
    assert {one["level"] for one in told.values()} == {"ok"}
    assert told["server"]["figures"]["version"] // 10_000 == 18
    assert abs(told["clock"]["figures"]["offset_seconds"]) < 0.5
    assert told["push"]["figures"]["works"] is True
    assert told["connections"]["figures"] | {"used": 0, "free": 0} == {
        "used": 0, "free": 0, "max": 30, "limited_by": "max_connections", "per_process": 5,
    }  # fmt: skip
    assert told["disk"]["figures"]["wal"] > 0
    assert 0 < told["disk"]["figures"]["tables"] < told["disk"]["figures"]["database"]
    shown = invoke("doctor", "--store", own.url(schema="work"))
    assert (shown.exit_code, "all is well (22 checks)" in shown.output) == (0, True)


def test_the_servers_of_the_tests_would_lose_everything(schema: str) -> None:
    """They run with fsync off, which nobody's orders should: exit code 9, and the line to change."""
    result = invoke("doctor", "--store", server().url(schema), env={"COLUMNS": "300"})
    assert result.exit_code == 9
    assert "fsync and full_page_writes off: a power cut loses what was acknowledged" in result.output
    assert "Set fsync = on, full_page_writes = on in postgresql.conf" in result.output
    assert server().base_url.partition("@")[0].rpartition(":")[2] not in result.output, "the password"


def test_commits_that_wait_for_a_standby_that_is_gone(own: OwnServer) -> None:
    """No commit ends then; the doctor does, and says why."""
    began = time.monotonic()
    own.execute("ALTER SYSTEM SET synchronous_standby_names = 'gone'")
    own.execute("SELECT pg_reload_conf()")
    try:
        one = found(own.url(schema="work"), "replication")
    finally:
        own.execute("ALTER SYSTEM RESET synchronous_standby_names")
        own.execute("SELECT pg_reload_conf()")
    assert one.level is Level.PROBLEM
    assert "commits wait for a synchronous standby (gone) and none is connected" in one.text
    assert time.monotonic() - began < 10


def test_too_few_connections_are_counted_before_they_are_missed(own: OwnServer) -> None:
    """Also by the limit of a role; when none is left that is what it says, in place of everything else."""
    own.execute("CREATE ROLE limited LOGIN CONNECTION LIMIT 8; GRANT ALL ON SCHEMA work TO limited")
    one = found(own.url("limited", schema="work"), "connections")
    assert (one.level, one.figures["free"]) == (Level.ATTENTION, 7)
    assert one.figures["limited_by"] == "the role's CONNECTION LIMIT"
    own.execute("ALTER ROLE limited CONNECTION LIMIT 3")
    assert found(own.url("limited", schema="work"), "connections").level is Level.PROBLEM
    own.execute("ALTER ROLE limited CONNECTION LIMIT 0")
    whole = diagnosis(own.url("limited", schema="work"))
    assert [(one.check, one.level) for one in whole.findings] == [("connection", Level.PROBLEM)]
    assert "too many connections for role" in whole.findings[0].text


def test_what_a_pooler_is_between_is_said(own: OwnServer) -> None:
    """Told by the URL here: each check is a transaction of its own, and needs nothing of the session."""
    one = found(own.url(schema="work", prepare="off"), "pooler")
    assert one.figures["pooled"] is True
    assert diagnosis(own.url(schema="work", prepare="off")).level is Level.OK


@pytest.mark.skipif(not has_pooler(), reason="PgBouncer is not installed: `make setup-servers`")
def test_a_real_pooler_is_recognised_and_that_it_does_not_push() -> None:
    """FAULTS B17: PgBouncer in transaction mode, at every look: that a session hears itself there is no proof."""
    url = server(pooled=True).url(server(pooled=True).fresh_schema())
    for _ in range(3):
        whole = {one.check: one for one in diagnosis(url).findings}
        assert whole["pooler"].figures == {"pooled": True}
        assert (whole["push"].level, whole["push"].figures) == (Level.ATTENTION, {"works": False})
        assert [one.text for one in whole.values() if "could not be checked" in one.text] == []


# -- the schema and the role -----------------------------------------------------------------------------


#: What was ever written to the tables of the schema, and which relations there are.
_EVERYTHING = """
SELECT (SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables WHERE schemaname = 'work'),
    (SELECT array_agg(oid ORDER BY oid) FROM pg_class)
"""


def test_a_role_that_may_only_read_is_enough_and_nothing_is_written(own: OwnServer) -> None:
    """What it lacks for working is said with the GRANTs; the tables are as they were."""
    name = f"reader_{secrets.token_hex(4)}"
    own.execute(f"CREATE ROLE {name} LOGIN; ALTER ROLE {name} SET default_transaction_read_only = on")
    own.execute(f"GRANT USAGE ON SCHEMA work TO {name}; GRANT SELECT ON ALL TABLES IN SCHEMA work TO {name}")
    before = own.execute(_EVERYTHING).fetchall()
    whole = diagnosis(own.url(name, schema="work"))
    levels = {one.check: one.level for one in whole.findings if one.level is not Level.OK}
    assert levels == {"privileges": Level.ATTENTION}
    one = found(own.url(name, schema="work"), "privileges")
    assert "enough for doctor, not for a worker" in one.text
    assert f"GRANT ALL ON ALL TABLES IN SCHEMA work TO {name};" in one.advice
    assert own.execute(_EVERYTHING).fetchall() == before


def test_a_role_that_may_nothing_is_told_what_to_grant(own: OwnServer) -> None:
    own.execute("CREATE ROLE stranger LOGIN")
    whole = {one.check: one for one in diagnosis(own.url("stranger", schema="work")).findings}
    assert whole["schema"].level is whole["privileges"].level is Level.PROBLEM
    assert "GRANT USAGE, CREATE ON SCHEMA work TO stranger;" in whole["privileges"].advice
    assert "runs" not in whole


def test_a_schema_that_is_not_there_is_not_made(own: OwnServer) -> None:
    """A look never makes anything, and says what to check."""
    one = found(own.url(schema="nowhere"), "schema")
    assert (one.level, "?schema=" in one.advice) == (Level.ATTENTION, True)
    assert own.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'nowhere'").fetchall() == [(0,)]


def test_a_schema_of_a_newer_perdure_is_a_finding(schema: str) -> None:
    """No store opens there; the doctor says what it is."""
    server().execute(f'UPDATE "{schema}".perdure_schema SET number = 99')
    try:
        one = found(server().url(schema), "schema")
        assert (one.level, one.figures["version"]) == (Level.PROBLEM, 99)
        assert "Upgrade perdure here" in one.advice
    finally:
        server().drop(schema)


def test_a_check_that_is_kept_waiting_says_so_and_stops_no_other(
    own: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has locked a table: what needs it cannot be said, the rest is, and soon."""
    monkeypatch.setattr("perdure.store.postgres.health.DOCTOR_CHECK_SECONDS", 0.2)
    with own.connect() as holder:
        holder.execute("LOCK TABLE work.dead_letters IN ACCESS EXCLUSIVE MODE")
        whole = {one.check: one for one in diagnosis(own.url(schema="work")).findings}
    assert whole["dead-letters"].level is Level.ATTENTION
    assert "could not be checked" in whole["dead-letters"].text
    assert [whole[name].level for name in ("workers", "runs", "due", "parked")] == [Level.OK] * 4


def test_a_password_of_the_url_is_nowhere(own: OwnServer) -> None:
    result = invoke("doctor", "--json", "--store", own.url(schema="work").replace("admin@", "admin:hunter2@"))
    assert result.exit_code == 0
    assert "hunter2" not in result.output
    result = invoke("doctor", "--json", "--store", "postgresql://me:hunter2@127.0.0.1:1/shop")
    assert result.exit_code == 9
    assert "hunter2" not in result.output
    assert "Connection refused" in result.output


# -- workers and runs ------------------------------------------------------------------------------------


def test_workers_and_what_nobody_works_on(schema: str, effects: Effects) -> None:
    """Of an open engine, too: its worker is alive; one that is silent, and one that is dead; a run that is due and that
    no worker takes."""
    url = server().url(schema)

    async def main() -> None:
        async with fleet_engine(url, lease=60) as engine:
            await engine.start(two_notes(str(effects.path), "a"), id="run")
            await until(lambda: waits(engine))
            one = await of(engine, "workers")
            assert (one.level, one.figures) == (Level.OK, {"alive": 1, "draining": 0, "silent": 0, "dead": 0})
            assert "the living have 1 run" in one.text
            assert engine.worker is not None
            await asyncio.to_thread(other_worker, schema, "quiet", "make_interval(secs => 30)")
            one = await of(engine, "workers")
            assert (one.level, one.figures) == (Level.ATTENTION, {"alive": 1, "draining": 0, "silent": 1, "dead": 0})
            assert "silent: 'quiet' (pid 7 on elsewhere), silent for 20 s" in one.text
            await engine.send("run", GoOn())
            await engine.result("run", timeout=20)
        await asyncio.to_thread(other_worker, schema, "gone", "make_interval(secs => -30)")
        admin = Admin(open_store(url))
        one = of_all(await admin.doctor(), "workers")
        assert one.level is Level.ATTENTION
        assert one.figures["dead"] == 1
        assert "start a worker" in one.advice

    run_async(main())


def other_worker(schema: str, name: str, left: str) -> None:
    """Registered 20 s ago, and not heard of since."""
    server().execute(f"DELETE FROM \"{schema}\".workers WHERE host = 'elsewhere'")
    server().execute(
        f'INSERT INTO "{schema}".workers (id, name, host, pid, started_at, renewed_at, expires_at, silence, release) '
        f"VALUES ('w-{name}', '{name}', 'elsewhere', 7, 0, clock_timestamp() - make_interval(secs => 20), "
        f"clock_timestamp() + {left}, make_interval(secs => 5), '')"
    )


async def of(engine: Any, check: str) -> Finding:
    return of_all(await engine.admin.doctor(), check)


def of_all(whole: Diagnosis, check: str) -> Finding:
    (one,) = [finding for finding in whole.findings if finding.check == check]
    return one


async def waits(engine: Any) -> bool:
    return bool((await engine.status("run")).status == "waiting")


def test_a_run_that_nobody_takes_is_named_with_why(schema: str) -> None:
    """No worker at all; then one that is alive and takes nothing; then its workers died of it."""
    url = server().url(schema)

    async def main() -> None:
        async with fleet_engine(url) as engine:
            assert await engine.list() == []
        from stores.store_kit import create

        store = PostgresStore(url)
        await store.open()
        await create(store, "left", owner=None, workflow="nobody_has_it")
        await store.close()
        admin = Admin(open_store(url))
        one = of_all(await admin.doctor(), "due")
        assert one.level is Level.PROBLEM
        assert one.text.startswith("1 run is due; for the longest time, ")
        assert "'left' (nobody_has_it" in one.text
        assert one.text.endswith("no worker is alive")
        await asyncio.to_thread(other_worker, schema, "busy", "make_interval(secs => 60)")
        server().execute(f'UPDATE "{schema}".workers SET renewed_at = clock_timestamp()')
        one = of_all(await admin.doctor(), "due")
        assert one.level is Level.ATTENTION
        assert one.text.endswith("1 worker alive, and none runs this workflow and version")
        server().execute(
            f"INSERT INTO \"{schema}\".served SELECT 'w-busy', json_build_array(json_build_array(workflow, version)) "
            f'FROM "{schema}".definitions'
        )
        assert of_all(await admin.doctor(), "due").level is Level.OK, "not for long yet"
        ago = round(2 * limits.DOCTOR_DUE_SECONDS * 1_000_000)
        server().execute(f'UPDATE "{schema}".runs SET ready_at = ready_at - {ago} WHERE ready_at < 0')
        server().execute(
            f'UPDATE "{schema}".runs SET ready_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - {ago} '
            "WHERE ready_at >= 0"
        )
        one = of_all(await admin.doctor(), "due")
        assert one.level is Level.ATTENTION
        assert "1 living worker could run it, and none takes it" in one.text
        assert 59 < one.figures["seconds"] < 90

    run_async(main())


def test_a_standby_is_a_finding_and_what_is_in_it_is_shown(own: OwnServer) -> None:
    """The last test of this module's server: it stays a standby."""
    own.become_standby()
    whole = {one.check: one for one in diagnosis(own.url(schema="work")).findings}
    assert whole["server"].level is Level.PROBLEM
    assert "a standby, which takes no changes" in whole["server"].text
    assert "host1,host2" in whole["server"].advice
    assert whole["runs"].level is Level.OK
    assert [one.text for one in whole.values() if "could not be checked" in one.text] == []
