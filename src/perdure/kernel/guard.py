"""The determinism guard at run time: whether workflow code may do what it is about to do.

Python tells audit hooks of every file, socket and process that is about to be opened. The engine installs one
(`engine.guarding`) that asks `refuse` here. Workflow code runs inside `RunLoop.drain`, so nothing has to be set around
a turn: on the thread of a turn the running loop is a `RunLoop` that is running, and nowhere else.

Everything here is a look at the stack. It is called before something forbidden happens, never on the way of a step.
"""

from __future__ import annotations

import os
import sys
from asyncio import events
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final, NamedTuple

from perdure.errors import Forbidden
from perdure.kernel.eventloop.loop import RunLoop
from perdure.kernel.eventloop.teardown import close_tasks
from perdure.kernel.run import Run
from perdure.kernel.sites import is_internal

_FILES: Final = "touches files"
_NETWORK: Final = "uses the network"
_PROCESSES: Final = "deals with processes"
_THREADS: Final = "starts a thread"

#: Audit events that workflow code has no business with: what it would do, by the name of the event.
WATCHED: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "open", "glob.glob", "glob.glob/2", "mmap.__new__", "os.chdir", "os.chflags", "os.chmod", "os.chown",
            "os.getxattr", "os.link", "os.listdir", "os.listxattr", "os.lockf", "os.mkdir", "os.remove",
            "os.removexattr", "os.rename", "os.rmdir", "os.scandir", "os.setxattr", "os.symlink", "os.truncate",
            "os.utime", "os.walk", "os.fwalk", "pathlib.Path.glob", "pathlib.Path.rglob", "shutil.copyfile",
            "shutil.copymode", "shutil.copystat", "shutil.copytree", "shutil.chown", "shutil.make_archive",
            "shutil.move", "shutil.rmtree", "shutil.unpack_archive", "sqlite3.connect", "tempfile.mkdtemp",
            "tempfile.mkstemp", "fcntl.fcntl", "fcntl.flock", "fcntl.ioctl", "fcntl.lockf",
        ),
        _FILES,
    ),
    **dict.fromkeys(
        (
            "ftplib.connect", "ftplib.sendcmd", "http.client.connect", "http.client.send", "imaplib.open",
            "imaplib.send", "nntplib.connect", "nntplib.putline", "poplib.connect", "poplib.putline", "smtplib.connect",
            "smtplib.send", "socket.__new__", "socket.bind", "socket.connect", "socket.getaddrinfo",
            "socket.gethostbyaddr", "socket.gethostbyname", "socket.gethostname", "socket.getnameinfo",
            "socket.getservbyname", "socket.getservbyport", "socket.sendmsg", "socket.sendto", "socket.sethostname",
            "telnetlib.Telnet.open", "telnetlib.Telnet.write", "urllib.Request", "webbrowser.open",
        ),
        _NETWORK,
    ),
    **dict.fromkeys(
        (
            "os.exec", "os.fork", "os.forkpty", "os.kill", "os.killpg", "os.posix_spawn", "os.putenv", "os.spawn",
            "os.startfile", "os.system", "os.unsetenv", "pty.spawn", "signal.pthread_kill", "subprocess.Popen",
            "syslog.syslog",
        ),
        _PROCESSES,
    ),
    **dict.fromkeys(("_thread.start_new_thread", "_thread.start_joinable_thread"), _THREADS),
    "time.sleep": "blocks the worker",  # Python 3.13 and later
    "builtins.input": "waits at a terminal",
}  # fmt: skip

#: What to write instead, where it is not a step.
_INSTEAD: Final[dict[str, str]] = {
    "time.sleep": "Write `await sleep(...)` instead.",
    "builtins.input": "Wait for a person with `await receive(...)` instead.",
    "_thread.start_new_thread": "Use asyncio's tasks, or do it in a function decorated with @step and await that.",
    "_thread.start_joinable_thread": "Use asyncio's tasks, or do it in a function decorated with @step and await that.",
}
_A_STEP: Final = "Move it into a function decorated with @step and await that."

#: Modules, by their first name, that may do as they like while workflow code runs: they load code, write logs and
#: show tracebacks, read the tables of time zones, or belong to a debugger. Nothing they read comes back as a value
#: that differs on a replay.
EXEMPT_MODULES: Final = frozenset({
    "_frozen_importlib", "_frozen_importlib_external", "_pydev_bundle", "_pydevd_bundle", "_pydevd_frame_eval", "bdb",
    "cmd", "coverage", "debugpy", "encodings", "faulthandler", "importlib", "inspect", "linecache", "logging", "loguru",
    "pdb", "pkgutil", "pydevd", "structlog", "tokenize", "traceback", "tzdata", "warnings", "weakref", "zipimport",
    "zoneinfo",
})  # fmt: skip

_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class Violation(NamedTuple):
    """Something workflow code does: `call` as it is written there, and where."""

    call: str
    place: str


# -- the stack ---------------------------------------------------------------------------------------------------


def running_code() -> Run | None:
    """The run whose code is running on this thread, or None."""
    loop = events._get_running_loop()
    return loop.owner if type(loop) is RunLoop and loop.running else None  # type: ignore[return-value]


def workflow_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of workflow code and of what it called, innermost first, without perdure's own below it."""
    while frame is not None and frame.f_code not in BOUNDARIES:
        yield frame
        frame = frame.f_back


def module_of(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name if isinstance(name, str) else ""


def is_library(file: str) -> bool:
    """Whether a file is not part of the user's project."""
    return file.startswith((_STANDARD, "<frozen")) or any(part in file for part in _INSTALLED) or is_internal(file)


def is_excused(frame: FrameType) -> bool:
    """Whether what happens is not the doing of workflow code, although that is further down the stack."""
    code = frame.f_code
    # An object that happens to be let go now may belong to anybody.
    return code.co_name == "__del__" or module_of(frame).partition(".")[0] in EXEMPT_MODULES


def violation_of(frame: FrameType | None, builtin: str) -> Violation | None:
    """What workflow code does that leads to `frame`, or None if it is not its doing. `builtin` names it if the call
    stands in the user's own code."""
    called: FrameType | None = None
    caller: FrameType | None = None
    for one in workflow_frames(frame):
        file = one.f_code.co_filename
        if is_excused(one) or is_internal(file):
            return None  # perdure or asyncio itself, before any line of the user: theirs to know
        called, caller = caller, one
        if not is_library(file):
            break  # else: workflows that are installed have no line of the project; the outermost one is theirs
    if caller is None:
        return None
    call = builtin if called is None else call_name(called)
    return Violation(f"{call}()", f"{os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno}")


def call_name(frame: FrameType) -> str:
    """`pathlib.Path.read_text`, for the frame of that function."""
    name = frame.f_code.co_qualname.removeprefix("Random.")  # the functions of `random` are methods
    return f"{module_of(frame)}.{name}"


# -- the judgement -----------------------------------------------------------------------------------------------


def refuse(event: str, arguments: tuple[Any, ...], frame: FrameType | None) -> None:
    """Raise `Forbidden` if an audit event is the doing of workflow code. Called for events of `WATCHED` only."""
    run = running_code()
    if run is None or run.io_check == "off" or (event == "open" and _is_time_zone(arguments[0])):
        return
    builtin = event.removeprefix("builtins.").partition("/")[0].removesuffix(".__new__")
    violation = violation_of(frame, builtin)
    if violation is None:
        return
    message = f"workflow code called {violation.call} at {violation.place}, which {WATCHED[event]}"
    instead = _INSTEAD.get(event, _A_STEP)
    if run.io_check == "warn":
        run.complain(f"{message} and is done again by every replay. {instead}")
        return
    # Code that catches everything goes on, with a line in the log that says why it got an error.
    run.complain(f"{message} and was refused. {instead}")
    raise Forbidden(f"{message}. {instead}")


def _is_time_zone(path: object) -> bool:
    """`ZoneInfo("Europe/Berlin")` reads its table from C code, without a frame of its own."""
    tables = getattr(sys.modules.get("zoneinfo"), "TZPATH", ())
    return isinstance(path, str) and path.startswith(tuple(tables))


#: Workflow code runs above these: a turn, or closing what a run that leaves memory had open.
BOUNDARIES: Final = frozenset({RunLoop.drain.__code__, close_tasks.__code__})
