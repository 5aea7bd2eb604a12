"""Law 5: the kernel is pure. No I/O, no clock, no randomness, no threads, no logging."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import perdure.kernel
from support.processes import Process

KERNEL = Path(perdure.kernel.__path__[0])
MODULES = sorted(KERNEL.rglob("*.py"))

#: Everything the kernel may import. Adding a name here is a decision about the law, not a detail.
ALLOWED_IMPORTS = {
    "__future__", "asyncio", "base64", "builtins", "collections", "contextlib", "contextvars", "dataclasses",
    "datetime", "decimal", "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "inspect", "ipaddress",
    "itertools", "math", "msgspec", "numbers", "pathlib", "perdure", "re", "sys", "traceback", "types", "typing",
    "uuid", "warnings", "weakref", "zlib",
}  # fmt: skip

#: Modules that refer to the impure originals without using them for a run; each with its reason.
ALLOWED_BY_MODULE = {
    "shims.py": {"os", "random", "secrets", "time"},  # refers to the originals to put stand-ins in their place
    # Is told of collections; a thread's number, to find what its host has running; enters contexts of the host.
    "collector.py": {"_thread", "ctypes", "gc"},
    "instances.py": {"dis"},  # reads which attributes a `__post_init__` assigns; pure
    "hosting.py": {"_thread"},  # the same number
    "randomness.py": {"random"},  # subclasses Random; its bits come from the seed
    "teardown.py": {"ctypes"},  # keeps a coroutine that cannot be closed from ever being finalised
    "guard.py": {"os"},  # the same, and refers to the module's own file
    "sites.py": {"os"},  # os.path on the names of frames: text, no file is touched
}

FORBIDDEN_NAMES = {"open", "print", "input", "eval", "exec", "__import__", "breakpoint"}

#: attribute chains that read a clock or randomness, wherever they come from
FORBIDDEN_CALLS = {
    "time.time", "time.time_ns", "time.monotonic", "time.perf_counter", "time.sleep", "time_module.time",
    "datetime.now", "datetime.utcnow", "datetime.today", "date.today", "datetime_module.datetime.today",
    "random.random", "random.randint", "random.choice", "random_module.random", "uuid.uuid1", "uuid.uuid4",
    "uuid_module.uuid4", "os.open", "os.read", "os.write", "os.environ", "os.getenv", "os.urandom", "os.stat",
    "os.listdir", "os.getpid", "sys.stdout", "sys.stderr", "sys.argv", "warnings.warn", "asyncio.run",
    "asyncio.to_thread", "asyncio.new_event_loop",
}  # fmt: skip

#: In shims.py the call is the fallback for code outside a run: the original, as it was meant.
ALLOWED_CALLS = {"shims.py": {"datetime_module.datetime.now"}}


def _imports(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports in the kernel are absolute"
            found.add((node.module or "").partition(".")[0])
    return found


def _chain(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_chain(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_kernel_module_imports_only_what_is_pure(path: Path) -> None:
    """Law 5: the import list is closed."""
    allowed = ALLOWED_IMPORTS | ALLOWED_BY_MODULE.get(path.name, set())
    assert _imports(ast.parse(path.read_text())) <= allowed


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_kernel_module_calls_nothing_impure(path: Path) -> None:
    """Law 5: no clock, no randomness, no files, no console, whatever the import list allows."""
    allowed = ALLOWED_CALLS.get(path.name, set())
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_NAMES, f"{path.name}:{node.lineno}"
        elif isinstance(node, ast.Attribute):
            chain = _chain(node)
            bad = {name for name in FORBIDDEN_CALLS if chain == name or chain.endswith(f".{name}")}
            assert not bad or chain in allowed, f"{path.name}:{node.lineno} uses {chain}"


def test_the_scan_would_catch_a_violation() -> None:
    """The law's test can fail: it sees the usual ways around it."""
    tree = ast.parse("import time\nfrom socket import socket\nnow = time.time()")
    assert _imports(tree) - ALLOWED_IMPORTS == {"time", "socket"}
    chains = {_chain(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert chains & FORBIDDEN_CALLS == {"time.time"}


def watch_a_replay() -> None:
    """In a process of its own, as audit hooks cannot be removed: every audit event of a replay."""
    from kernel.programs import explore
    from plain_python.orders import record, replay

    explore(1)  # whatever is imported or compiled on first use has been by now
    drive, _ = record("order_of_locks")
    replay(drive)
    events: list[str] = []
    watching = False
    harmless = ("object.__getattr__", "object.__setattr__", "sys._getframe", "sys.set_asyncgen_hook", "code.__new__")

    def hook(name: str, arguments: object) -> None:
        if watching and not name.startswith(harmless):
            events.append(f"{name} {arguments!r}")

    sys.addaudithook(hook)
    watching = True
    replay(drive)
    watching = False
    drive.close()
    print("seen:", *sorted(set(events)), flush=True)


def test_a_replay_touches_nothing_outside() -> None:
    """Law 5, at run time: no file, socket, process, import or clock is audited while a journal is replayed."""
    with Process("laws.test_kernel_is_pure:watch_a_replay") as process:
        process.expect("seen:")
        assert process.wait() == 0
