"""Accelerated functions beside their definitions, with arguments and objects as nobody should use them.

A case is a number: it says which function, what is odd about the call (too few arguments, or too many, by keyword, of
other types, None, instances that were never initialised, of subclasses, whose fields were deleted or replaced, whose
`__eq__`, `__hash__`, `__bool__`, `__len__`, `__del__`... change other objects meanwhile), and so builds the same world
twice: one for the function in C, one for the definition. Both must end in the same way and leave the same behind.

By hand, for long: `cd tests && python -m native.hostile 0 100000`; one case again: `python -m native.hostile 58 59 -v`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import faulthandler
import gc
import logging
import random
import re
import sys
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from types import MemberDescriptorType
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from perdure import native, step, workflow
from perdure.authoring.step import Step
from perdure.engine.clock import SystemClock
from perdure.engine.resident import Inbox, Outcome, Resident
from perdure.engine.settings import Settings
from perdure.engine.steps import Attempt, StepRunner
from perdure.engine.turns import TurnBuilder, started_record
from perdure.kernel import journal
from perdure.kernel.exact import same_data
from perdure.kernel.journal import Record, StepDone, to_row
from perdure.kernel.loop import Post, RunLoop, RunTask
from perdure.kernel.operation import Branch, StepOperation, encode_step_frontier
from perdure.kernel.pending import Pending
from perdure.kernel.run import Run
from perdure.store.base import PLAIN, Entry, NewRun, Status, StepTurn, Turn
from perdure.store.sqlite.bulk import Bulk

Call: TypeAlias = "tuple[list[Any], dict[str, Any]]"

#: What the code of the workflow does in the middle of its turn.
_acting: list[Callable[[], None]] = []


@step
async def double(number: int) -> int:
    return number * 2


@step
async def spell(text: Any, *more: Any) -> Any:
    return [text, *more]


@workflow
async def flow(number: int) -> Any:
    total = await double(number)
    while _acting:
        _acting.pop()()
    return await asyncio.gather(double(total), spell("x"))


class _Host:
    """The event loop of the engine, as far as a runner of steps needs one."""

    def create_task(self, coroutine: Any) -> Any:
        coroutine.close()
        return self

    def add_done_callback(self, _callback: Any) -> None:
        return None

    def time(self) -> float:
        return 0.0

    def call_soon(self, *_call: Any) -> None:
        return None

    def call_later(self, *_call: Any) -> Any:
        return asyncio.Handle(_nothing, (), self)  # type: ignore[arg-type]

    def get_debug(self) -> bool:
        return False


class World:
    """One object of each class that the accelerated functions know, in the middle of a run."""

    def __init__(self, workflow: Any = flow) -> None:
        spec = workflow.spec
        self.started = started_record(spec, b'{"number":3}', 7, 1_000)
        self.run = Run(spec, "run", 1, latest=lambda name: spec, post=Post())
        self.new_run = Run(spec, "other", 1, latest=lambda name: spec, post=Post())
        self.resident = Resident(5, 1, self.run, 2, None, Inbox(), is_current=True)
        self.resident.commands = self.run.deliver(self.started)
        (asked,) = self.resident.commands
        self.command = asked
        self.resident.commands = []
        self.operation: StepOperation = asked.operation  # type: ignore[union-attr]
        self.codec = copy.copy(self.operation.spec.result)  # copies: others share them
        self.operation.spec = self.spec = msgspec.structs.replace(self.operation.spec, result=self.codec)
        self.loop, self.pending, self.inbox = self.run.loop, self.run.pending, self.resident.inbox
        self.branch, self.task = Branch("some/where"), self.run._main
        self.body = StepDone(Raw(b"6"), 1, Raw(b'{"number":3}'), self.operation.arguments_digest(), "a.py:1")
        self.record = Record(2, 2_000, self.operation.location, self.body)
        self.row = to_row(self.record)
        self.entry = Entry(self.row)
        self.turn: Turn = StepTurn(5, 1, 1, 2, [self.entry], Status.RUNNING, None, 9, b"{}")
        self.other_turn = Turn(5, 1, 1, 2, [self.entry], Status.RUNNING, None, 9, b"{}", state=b"1")
        self.opening = Turn(5, 1, 1, 2, [], Status.RUNNING, None, 9, b"{}")
        self.new = NewRun("run", "flow", "1", b"digest", to_row(self.started), 1_000, None, "worker")
        self.bulk = Bulk()
        self.runner = StepRunner(SystemClock(), 10, 2, 1, random.Random(1), _nothing, _nothing, _nothing)
        self.runner._loop = _Host()  # type: ignore[assignment]
        self.attempt = Attempt(self.resident, self.operation, 1, True)
        self.outcome = Outcome(self.operation, self.body, 2_000, 6)
        self.builder = TurnBuilder("worker", Settings(), lambda: 1)
        self.step = Step(double.function, None, double.settings)
        self.handle = self.loop.call_soon(int)
        self.loop._ready.clear()
        self.context = contextvars.copy_context()

    def objects(self) -> list[Any]:
        return [value for value in vars(self).values() if fields_of(value)]

    def close(self) -> None:
        _acting.clear()
        for run in (self.run, self.new_run):
            with contextlib.suppress(BaseException):
                run.close()


def fields_of(value: Any) -> dict[str, MemberDescriptorType]:
    """The places of an object that C reads without asking it."""
    found = {
        name: member
        for cls in type(value).__mro__
        for name, member in vars(cls).items()
        if type(member) is MemberDescriptorType and name not in ("__weakref__", "__dict__")
    }
    return dict(sorted(found.items())) if type(value).__module__.startswith("perdure") else {}


# -- the functions, each with a call as it should be ----------------------------------------


def _ended(world: World) -> deque[tuple[Any, Any]]:
    world.resident.attempts[world.operation.location] = world.attempt
    return deque([(world.attempt, 6)])


def _attempted(world: World) -> Attempt:
    world.resident.attempts[world.operation.location] = world.attempt
    return world.attempt


def _queued(world: World) -> StepRunner:
    world.runner._queue.append(_attempted(world))
    return world.runner


def _with_outcome(world: World) -> Resident:
    world.resident.outcomes.append(world.outcome)
    return world.resident


def _followed(world: World) -> list[Resident]:
    world.resident.following = world.operation
    return [world.resident]


def _ready(world: World) -> RunLoop:
    world.loop._ready += [world.handle, world.loop.call_soon(len, ())]
    return world.loop


def _finished_main(world: World) -> RunTask:
    world.run.deliver_result(2, 2_000, world.operation, 6)
    for location in list(world.pending.operations):
        world.run.deliver_result(3, 3_000, world.pending.operations[location], 1)
    world.run.outcome = None
    assert world.run._main is not None
    return world.run._main


def _nothing(*_args: Any) -> None:
    return None


def _coroutine(world: World) -> Any:
    return world.step(1)


#: By the qualified name of the definition. A function that is missing here makes the test red.
TARGETS: dict[str, Callable[[World], list[Any]]] = {
    "RunLoop.call_soon": lambda world: [world.loop, _nothing, 1],
    "RunLoop._run_ready": lambda world: [_ready(world)],
    "RunLoop.create_task": lambda world: [world.loop, _coroutine(world)],
    "RunTask.__init__": lambda world: [
        RunTask.__new__(RunTask), _coroutine(world), world.loop, world.branch, world.context,
    ],
    "RunTask.__hash__": lambda world: [world.task],
    "Branch.locate": lambda world: [world.branch, "charge"],
    "Run._finish": lambda world: [world.run, _finished_main(world)],
    "Run.ask_step": lambda world: [world.run, world.spec, (1,), b"{}", "a.py:1"],
    "Run.deliver_result": lambda world: [world.run, 2, 2_000, world.operation, 6],
    "Run.deliver": lambda world: [world.run, world.record],
    "Step.__call__": lambda world: [world.step, 1],
    "make_loop": lambda world: [None, 5, world.loop.post],
    "to_row": lambda world: [world.record],
    "same_data": lambda world: [{"a": [1, (2.5, "x")]}, {"a": [1, (2.5, "x")]}],
    "encode_step_frontier": lambda world: [2, world.operation],
    "StepRunner.start": lambda world: [world.runner, world.resident, world.operation],
    "StepRunner.start_all": lambda world: [world.runner, _followed(world), [world.turn], [PLAIN]],
    "StepRunner._begin": lambda world: [world.runner, world.attempt],
    "StepRunner._serve_some": lambda world: [_queued(world), 64],
    "StepRunner.returned": lambda world: [world.runner, _attempted(world), 6],
    "StepRunner._note": lambda world: [world.runner, _attempted(world), world.body],
    "TurnBuilder.take_results": lambda world: [world.builder, _ended(world), 2_000, [], []],
    "TurnBuilder.take_result": lambda world: [world.builder, _attempted(world), 6, 2_000],
    "TurnBuilder._take_outcomes": lambda world: [world.builder, _with_outcome(world), 2_000, []],
    "Bulk._add_step": lambda world: [world.bulk, world.turn],
    "Bulk._add_turn": lambda world: [world.bulk, world.other_turn],
    "Bulk._add_run": lambda world: [world.bulk, world.new, world.opening],
}  # fmt: skip

#: These are called by the code of a workflow, in its turn.
INSIDE = {"RunLoop.call_soon", "RunLoop.create_task", "RunTask.__init__", "Run.ask_step", "Step.__call__"}

_CLASSES = {
    cls.__name__: cls
    for cls in (RunLoop, RunTask, Branch, Run, Step, StepRunner, TurnBuilder, Bulk, StepOperation, Pending, Resident)
}
_FUNCTIONS = {"same_data": same_data, "to_row": to_row, "encode_step_frontier": encode_step_frontier}


def accelerated(name: str) -> Callable[..., Any]:
    if "." in name:
        owner, method = name.split(".")
        found: Callable[..., Any] = getattr(_CLASSES[owner], method)
        return found
    from perdure.kernel import loop

    return _FUNCTIONS.get(name) or loop.make_loop


# -- what is odd ----------------------------------------


class Mischief:
    """Changes something else when Python asks it anything, once; then answers what was agreed."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._rng = random.Random(rng.random())
        self._world: World | None = world
        self._answer = rng.choice([True, False, 0, 3, None, "raise"])
        self._number = rng.randrange(50)

    def _act(self) -> Any:
        world, self._world = self._world, None
        if world is not None:
            for _ in range(3):
                change_a_field(world, self._rng, depth=1)
        if self._answer == "raise":
            raise ZeroDivisionError
        return self._answer

    def __repr__(self) -> str:
        return "<mischief>"

    def __eq__(self, other: object) -> Any:
        return self._act()

    def __hash__(self) -> int:
        self._act()
        return self._number

    def __bool__(self) -> bool:
        return bool(self._act())

    def __len__(self) -> int:
        return int(self._act() or 0)

    def __index__(self) -> int:
        return int(self._act() or 0)

    def __lt__(self, other: object) -> Any:
        return self._act()

    __gt__ = __le__ = __ge__ = __lt__

    def __add__(self, other: object) -> Any:
        return self._act()

    __radd__ = __sub__ = __add__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._act()

    def __iter__(self) -> Iterator[Any]:
        return iter([self._act()])

    def __del__(self) -> None:
        with contextlib.suppress(BaseException):
            self._act()


class _Text(str):
    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    __hash__ = str.__hash__


class _Number(int):
    pass


class _Dict(dict[Any, Any]):
    pass


class _List(list[Any]):
    pass


class _Bytes(bytes):
    pass


class _Strange(type):
    def __hash__(cls) -> int:
        raise ZeroDivisionError


class _OfStrangeClass(metaclass=_Strange):
    pass


_CONSTANTS = (
    None, True, False, 0, 1, -1, 3, 2**62, 2**63, 10**30, 1.5, float("nan"), "", "x", "\ud800", "é", "x" * 5_000, b"",
    b"{}", b"x" * 20_000, (), [], {}, (1,), [1], {"a": 1}, object, object(), int, hash, Ellipsis, Status.FAILED,
)  # fmt: skip


def odd(world: World, rng: random.Random, depth: int = 0) -> Any:
    """A value that does not belong where it is put."""
    kind = rng.randrange(10)
    if kind < 4:
        value = rng.choice(_CONSTANTS)
        return copy.copy(value) if type(value) in (list, dict) else value
    if kind < 6 and depth == 0:
        return Mischief(world, rng)
    if kind == 6:
        return rng.choice([
            lambda: _Text("charge"), lambda: _Number(2), _Dict, _List, lambda: _Bytes(b"{}"), _OfStrangeClass,
            lambda: (_ for _ in ()), contextvars.copy_context, asyncio.Lock, lambda: deque([1]),
        ])()  # fmt: skip
    value = rng.choice([value for value in world.objects() if not _hashes_its_fields(value)])
    return uninitialised(value) if kind == 7 else value


def _hashes_its_fields(value: Any) -> bool:
    """The hash of such an object is msgspec's, which ends the process if the object has become a part of itself."""
    return isinstance(value, msgspec.Struct) and bool(value.__struct_config__.frozen)


def uninitialised(value: Any) -> Any:
    """An object of the same class, of which no field has a value."""
    cls = type(value)
    try:
        return cls.__new__(cls)
    except TypeError:  # msgspec's classes are made in one go
        with contextlib.suppress(AttributeError, TypeError):
            value = copy.copy(value)
            for member in fields_of(value).values():
                member.__delete__(value)
        return value


def of_a_subclass(value: Any) -> Any:
    """The same, of a class derived from its own."""
    cls = type(value)
    try:
        derived = type(cls.__name__, (cls,), {"__slots__": ()})
        made = derived.__new__(derived)
        for name, member in fields_of(value).items():
            if hasattr(value, name):
                member.__set__(made, member.__get__(value))
        if hasattr(value, "__dict__"):
            made.__dict__.update(value.__dict__)
    except Exception:
        return value
    return made


def change_a_field(world: World, rng: random.Random, depth: int = 0) -> None:
    """Delete or replace a field of one of the objects, without asking its class."""
    target = rng.choice(world.objects())
    member = rng.choice(list(fields_of(target).values()))
    deletes, replaces, value = rng.random() < 0.4, rng.random() < 0.7, odd(world, rng, depth)
    with contextlib.suppress(AttributeError, TypeError):
        if deletes:
            member.__delete__(target)
        elif replaces:
            member.__set__(target, value)
        elif isinstance(held := member.__get__(target), (list, dict, deque)):
            held.clear()


def make_odd(world: World, rng: random.Random, args: list[Any]) -> Call:
    """Change the world, and a call that was as it should be."""
    kwargs: dict[str, Any] = {}
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        change_a_field(world, rng)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        what = rng.randrange(7)
        if what == 0 and args:
            args.pop(rng.randrange(len(args)))
        elif what == 1:
            args.insert(rng.randrange(len(args) + 1), odd(world, rng))
        elif what == 2:
            kwargs[rng.choice(("context", "name", "known", "alone", "post", "number", "nothing"))] = odd(world, rng)
        elif what == 3 and args:
            place = rng.randrange(len(args))
            args[place] = of_a_subclass(args[place])
        elif args:
            args[rng.randrange(len(args))] = odd(world, rng)
    return args, kwargs


# -- comparing ----------------------------------------


_ADDRESS = re.compile("0x[0-9a-f]+")
#: Fields that hold what is made when it is first needed, which one of the two may do without.
_CACHES = ("_context", "_made", "_read_untagged", "site")


def described(value: Any, depth: int = 3) -> Any:
    """What can be compared of a value in another world: no addresses, and nothing that asks the value."""
    kind = type(value)
    if kind is journal.Row and len(value) > 3 and type(value[3]) is not str:
        value = value[:3]  # its checksum is one of a text with an address
    if kind in (int, str, bytes, bool, type(None), float, _Text, _Number, _Bytes):
        return (kind.__name__, _ADDRESS.sub("0x", repr(value)))
    if depth and kind in (list, tuple, deque, _List, journal.Row):
        return (kind.__name__, [described(item, depth - 1) for item in value])
    if depth and kind in (dict, _Dict):
        return (kind.__name__, [(described(k, 0), described(v, depth - 1)) for k, v in dict.items(value)])
    found = fields_of(value)
    if not depth or not found:
        return kind.__name__
    held = [(name, _field(value, member, depth)) for name, member in found.items() if name not in _CACHES]
    return (kind.__name__, held)


def _field(value: Any, member: MemberDescriptorType, depth: int) -> Any:
    try:
        return described(member.__get__(value), depth - 1)
    except AttributeError:
        return "no value"


def end_of(call: Callable[[], Any]) -> Any:
    """How a call ended: what it returned, or the class of what it raised."""
    try:
        result = call()
    except BaseException as error:
        return ("raised", type(error).__name__, str(error)[:200])
    if asyncio.iscoroutine(result):
        result.close()
    return ("returned", described(result))


def one_end(number: int, use_definition: bool) -> tuple[str, Any, Any]:
    """How one case ends: the function, how it ended, and what it left behind."""
    rng = random.Random(number)
    name = rng.choice(sorted(TARGETS))
    world = World()
    ends: list[Any] = []
    try:
        args = TARGETS[name](world)
        function = native.definitions[name] if use_definition else accelerated(name)

        def act() -> None:
            given, kwargs = make_odd(world, rng, args)
            ends.append(end_of(lambda: function(*given, **kwargs)))

        if name in INSIDE:
            _acting.append(act)
            ends.append(end_of(lambda: world.run.deliver(world.record)))
        else:
            act()
        left = [described(value, 2) for value in world.objects() if value is not world.turn]
        return name, ends, left
    finally:
        world.close()


def differs(first: Any, second: Any) -> bool:
    """Ends differ if one raises and the other does not, or something else; texts of errors may."""
    return [end[:2] for end in first] != [end[:2] for end in second]


def compare(first: int, last: int, verbose: bool = False) -> Counter[str]:
    """Run cases. Raises `AssertionError` at the first that differs; returns how often each function ended how."""
    counts: Counter[str] = Counter()
    for number in range(first, last):
        print(number, file=sys.stderr) if verbose else None
        name, plain, plain_left = one_end(number, use_definition=True)
        _, fast, fast_left = one_end(number, use_definition=False)
        if verbose:
            print(name, plain, fast, sep="\n", file=sys.stderr)
        assert not differs(plain, fast), f"case {number}, {name}: {plain} in Python, {fast} in C"
        if plain[0][0] == "returned":
            assert plain_left == fast_left, f"case {number}, {name} leaves {_first_difference(plain_left, fast_left)}"
        counts[f"{name} {plain[0][0]}"] += 1
    return counts


def _first_difference(plain: Any, fast: Any) -> str:
    return next((f"{a} in Python, {b} in C" for a, b in zip(plain, fast, strict=False) if a != b), "another number")


def main(first: str, last: str, *options: str) -> None:
    """What a process of its own does: so that one that C ends is seen to have ended."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(600, exit=True)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
    assert native.IN_USE
    assert set(TARGETS) == set(native.definitions), "each accelerated function has a call here"
    host = asyncio.new_event_loop()
    ends: list[Any] = []

    def run() -> None:
        try:
            ends.append(compare(int(first), int(last), "-v" in options))
        except BaseException as error:
            ends.append(error)
        host.stop()

    host.call_soon(run)
    host.run_forever()
    gc.collect()
    (end,) = ends
    if isinstance(end, BaseException):
        print(f"{type(end).__name__}: {end}", flush=True)
        raise end
    print(" ".join(f"{name.replace(' ', '=')}:{count}" for name, count in sorted(end.items())), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
