"""The strict guard: in tests, code that reads a clock, randomness or the machine past perdure is stopped there.

While workflow code runs, Python tells this guard of every call (`sys.setprofile`). What would differ on a replay raises
`Nondeterministic` at the call, with its line and what to write. A call counts if workflow code or a helper of the
project makes it, directly or through a module that only hands the value on (`uuid.uuid4` draws its bits from
`os.urandom`). Other libraries may do as they like: a logger that takes the time for its line changes nothing.

What the stand-ins give to workflow code never gets here: they do not call the originals.
"""

from __future__ import annotations

import os
import random
import sys
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, Final, NamedTuple

from perdure.authoring.lint_tables import BARE, FORBIDDEN, SHIMMED, instead_of
from perdure.errors import Nondeterministic
from perdure.kernel.guard import call_name, is_excused, is_library, module_of, running_code, workflow_frames
from perdure.kernel.sites import is_internal

#: Modules that hand on what they read: their caller has it.
_TRANSPARENT: Final = frozenset({
    "_collections_abc", "_pydatetime", "arrow", "collections.abc", "datetime",
    "django.utils.timezone", "email.utils", "faker", "genericpath", "getpass", "glob", "ntpath", "os", "pathlib",
    "pathlib._abc", "pathlib._local", "pendulum", "platform", "posixpath", "random", "secrets", "shutil", "tempfile",
    "threading", "ulid", "uuid", "uuid6",
})  # fmt: skip

#: Of these modules only starting a thread counts: a lock by itself changes nothing.
_THREAD_MODULES: Final = frozenset({"_thread", "_queue"})
#: Methods in which these answers are at home: nothing of them is kept beyond the process.
_AT_HOME: Final = {"builtins.hash": "__hash__", "builtins.id": "__hash__"}
_CHANCE: Final = "use `random()` or `uuid4()` from perdure"


class _Suspect(NamedTuple):
    name: str
    instead: str


#: Functions written in Python that read something by themselves.
_READERS: dict[CodeType, _Suspect] = {
    type(os.environ).__getitem__.__code__: _Suspect(
        "os.environ", "pass what it needs as an argument, or read it in a step"
    )
}
_SEED = random.Random.seed.__code__
_UNSEEDED = _Suspect("random.Random", f"give it a seed, or {_CHANCE}")


class StrictGuard:
    """A guard for `VirtualEngine`: entered around all workflow code."""

    def __init__(self) -> None:
        self._depth = 0
        self._refused: Nondeterministic | None = None
        self._known: dict[Any, _Suspect | None] = {}

    def __call__(self) -> StrictGuard:
        return self

    def __enter__(self) -> None:
        self._depth += 1
        # Somebody who measures with a profiler of his own is not disturbed: there can be only one.
        if self._depth == 1 and sys.getprofile() is None:
            sys.setprofile(self._called)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        if sys.getprofile() == self._called:
            sys.setprofile(None)
        refused, self._refused = self._refused, None
        if refused is not None and error is None:
            raise refused  # the code caught it and went on, as if it were an error of its own

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            suspect = self._suspect(argument)
            caller: FrameType | None = frame
            if suspect is None or (suspect.name in BARE and _has_arguments(frame, BARE[suspect.name])):
                return
        elif event == "call":
            code = frame.f_code
            suspect = _UNSEEDED if code is _SEED and frame.f_locals.get("a") is None else _READERS.get(code)
            if suspect is None:
                return
            caller = frame.f_back
        else:
            return
        self._judge(suspect, caller)

    def _suspect(self, function: Any) -> _Suspect | None:
        owner = getattr(function, "__self__", None)
        if isinstance(owner, ModuleType):
            try:
                return self._known[function]
            except KeyError:
                found = self._known[function] = _suspect_function(owner.__name__, function.__name__)
                return found
        # Methods are made anew for every call; few names matter.
        match function.__name__:
            case "now" | "utcnow" | "today" if isinstance(owner, type):
                name = f"datetime.{'date' if owner.__name__ == 'date' else 'datetime'}.{function.__name__}"
                return _Suspect(name, SHIMMED[name]) if name in SHIMMED else None
            case "random" | "getrandbits" if owner is getattr(random, "_inst"):  # noqa: B009
                return _Suspect(f"random.{function.__name__}", _CHANCE)
            case _:
                return None

    def _judge(self, suspect: _Suspect, frame: FrameType | None) -> None:
        run = running_code()
        if run is None:
            return
        called: FrameType | None = None
        at_home = _AT_HOME.get(suspect.name)
        for caller in workflow_frames(frame):
            file = caller.f_code.co_filename
            if caller.f_code.co_name == at_home or is_excused(caller):
                return
            if file == run.spec.function.__code__.co_filename:
                break
            if file.startswith("<") and not file.startswith("<frozen"):
                continue  # code made by a library for a class of the project, such as a dataclass's __init__
            if not is_library(file):
                break
            if is_internal(file) or module_of(caller) not in _TRANSPARENT:
                return
            called = caller
        else:
            return
        name = suspect.name.removeprefix("builtins.") if called is None else call_name(called)
        place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        self._refused = Nondeterministic(
            f"workflow code called {name}() in {caller.f_code.co_name!r} at {place}, which gives something else on "
            f"every replay: {suspect.instead}."
        )
        raise self._refused


def _suspect_function(module: str, name: str) -> _Suspect | None:
    if module in _THREAD_MODULES and not name.startswith("start_"):
        return None
    qualified = f"{'os' if module in ('posix', 'nt') else module}.{name}"
    if qualified == "_uuid.generate_time_safe":
        return _Suspect("uuid.uuid1", _CHANCE)
    instead = instead_of(qualified, FORBIDDEN) or instead_of(qualified, SHIMMED)
    return None if instead is None else _Suspect(qualified, instead)


def _has_arguments(frame: FrameType, least: int) -> bool:
    """Whether the call at which a frame stands is given that many arguments: `time.ctime(0)` reads no clock."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return at + 1 < len(code) and code[at + 1] >= least
