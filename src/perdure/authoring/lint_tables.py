"""What workflow code should not call, by the qualified name of what is called, and what to write instead."""

from __future__ import annotations

from typing import Final

_STEP: Final = "move it into a step"
_NOW: Final = "use `now()` from perdure"
_CHANCE: Final = "use `random()` or `uuid4()` from perdure"

#: The stand-ins give deterministic values for these in a workflow function itself, so they count in helpers only.
SHIMMED: Final[dict[str, str]] = {
    **{
        f"time.{name}": _NOW
        for name in (
            "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
            "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "localtime",
            "gmtime", "ctime", "asctime", "strftime",
        )
    },
    **{f"datetime.datetime.{name}": _NOW for name in ("now", "utcnow", "today")},
    "datetime.date.today": _NOW,
    **{f"uuid.{name}": _CHANCE for name in ("uuid1", "uuid4", "uuid6", "uuid7")},
    "random.*": _CHANCE,
    "os.urandom": _STEP,
    "os.getrandom": _STEP,
    "uuid.getnode": _STEP,
    "secrets.*": _STEP,
}  # fmt: skip

FORBIDDEN: Final[dict[str, str]] = {
    "time.sleep": "write `await sleep(...)`",
    "builtins.open": _STEP,
    "io.open": _STEP,
    "_io.open": _STEP,  # what Python 3.12 and later call it
    "builtins.input": "wait for a person with `receive(...)`",
    "builtins.hash": "use hashlib: the hash of a text differs from process to process",
    "builtins.id": "it differs from process to process: compare with `is`, or keep a key of your own",
    "os.getenv": f"pass it as an argument, or {_STEP}",
    **{
        f"os.{name}": _STEP
        for name in (
            "open", "read", "write", "remove", "unlink", "rename", "replace", "mkdir", "makedirs", "rmdir",
            "removedirs", "listdir", "scandir", "walk", "stat", "lstat", "chmod", "chown", "link", "symlink",
            "truncate", "system", "popen", "fork", "kill", "getcwd", "chdir", "getpid", "getppid", "getlogin", "uname",
            "cpu_count", "execv", "execve", "execvp", "spawnv", "spawnl",
        )
    },
    **{
        f"{module}.{name}": _STEP
        for module in ("posixpath", "genericpath", "ntpath")
        for name in ("exists", "isfile", "isdir", "getsize", "getmtime", "getctime", "realpath", "samefile", "abspath")
    },
    **{
        f"{module}.*": _STEP
        for module in (
            "aiohttp", "asyncpg", "boto3", "botocore", "ftplib", "glob", "http.client", "httpx", "imaplib",
            "multiprocessing", "platform", "psycopg", "psycopg2", "pymongo", "redis", "requests", "select", "shutil",
            "smtplib", "socket", "_socket", "sqlite3", "_sqlite3", "sqlalchemy", "ssl", "subprocess", "tempfile",
            "urllib.request", "urllib3", "webbrowser",
        )
    },
    **{
        f"{module}.*": f"use asyncio's tasks, or {_STEP}"
        for module in ("threading", "_thread", "concurrent.futures", "concurrent.futures.thread", "queue", "_queue")
    },
    "asyncio.threads.to_thread": _STEP,
}  # fmt: skip

#: With this many arguments they read no clock and draw no lots: `time.ctime(0)`, `random.Random(4)`.
BARE: Final[dict[str, int]] = {
    "time.gmtime": 1, "time.localtime": 1, "time.ctime": 1, "time.asctime": 1, "time.strftime": 2, "random.Random": 1,
}  # fmt: skip

#: Methods by which a path touches the disk, wherever it comes from.
PATH_METHODS: Final = frozenset({
    "chmod", "exists", "glob", "is_dir", "is_file", "iterdir", "mkdir", "open", "read_bytes", "read_text", "rename",
    "rglob", "rmdir", "stat", "symlink_to", "touch", "unlink", "write_bytes", "write_text", "resolve",
})  # fmt: skip

#: Built-ins whose result does not depend on the order in which they read a set.
ORDERLESS: Final = frozenset({"sorted", "len", "sum", "min", "max", "any", "all", "set", "frozenset", "bool"})

MUTATORS: Final = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault",
    "update",
})  # fmt: skip


def instead_of(name: str, table: dict[str, str]) -> str | None:
    """What to write instead of something, by its qualified name; `module.*` in the table stands for all of a module."""
    if name in table:
        return table[name]
    module = name
    while "." in module:
        module = module.rpartition(".")[0]
        if f"{module}.*" in table:
            return table[f"{module}.*"]
    return None
