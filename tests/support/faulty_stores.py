"""Stores that die, raise, wait, lose their answers, or only say what they are asked: one wrapper, with rules.

`DisturbedStore(store)` passes everything on. A rule says at which calls something happens, when, and what:

    store.after("delete", die, at=3)                                  # SIGKILL once three deletions are durable
    store.before("commit", unavailable(), times=2)                    # out of reach twice
    store.after("commit", lose_answer, when=holds("step_done"))       # raised but committed
    store.before("commit", hold := Hold(), times=1)                   # then `hold.reached` and `hold.release`
    asked = store.note("release", "close")                            # the names of these calls, in their order

Rules of one call act in the order in which they were made. `OutageStore` instead counts all calls of an engine and lets
one of them fail. It and the crashes of `Lives` are made of what is published in `perdure.testing.wrappers`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from perdure.errors import StoreUnavailable
from perdure.store.sqlite import SQLiteStore
from perdure.store.turn import Spawn, Turn
from perdure.testing import wrappers


@dataclass
class Call:
    """One call of the store."""

    name: str
    args: tuple[Any, ...]
    named: dict[str, Any] = field(default_factory=dict)
    #: What the store answered; None before it did.
    result: Any = None

    @property
    def turns(self) -> list[Turn]:
        """The turns that a `commit`, a `create` or a `create_all` is to make durable."""
        match self.name:
            case "commit":
                return list(self.args[0])
            case "create_all":
                return [turn for _, turn in self.args[0] if turn is not None]
            case "create":
                return [turn for turn in self.args[1:2] if turn is not None]
            case _:
                return []

    @property
    def records(self) -> int:
        """How many records it makes durable; a new run has one of its own."""
        created = len(self.args[0]) if self.name == "create_all" else self.name == "create"
        return created + sum(len(turn.entries) for turn in self.turns)


Act = Callable[[Call], Awaitable[object] | object]
#: How much a call counts towards the one at which a rule acts. False: it does not count at all.
When = Callable[[Call], int]
Moment = Literal["at the call", "before", "after"]
#: A call, or several that one rule counts together.
Names = str | tuple[str, ...]


def always(_call: Call) -> bool:
    return True


@dataclass
class Rule:
    """Acts from the `at`-th call on that `when` counts, `times` times (None: every time)."""

    act: Any
    when: When = always
    at: int = 1
    times: int | None = None
    #: The calls at which it acted.
    hits: int = 0
    _counted: int = field(default=0, repr=False)

    def applies(self, call: Call) -> bool:
        weight = self.when(call)
        self._counted += weight
        if not weight or self._counted < self.at or self.hits == self.times:
            return False
        self.hits += 1
        return True


class DisturbedStore:
    """A store with rules about its calls. Passes everything else on, attributes too."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._rules: list[tuple[str, Moment, Rule]] = []

    # -- rules -------------------------------------------------------------------------------------------------------

    def before(self, names: Names, act: Act, when: When = always, *, at: int = 1, times: int | None = None) -> Rule:
        """Act before the store carries the call out; if `act` raises, it never does."""
        return self._add(names, "before", Rule(act, when, at, times))

    def after(self, names: Names, act: Act, when: When = always, *, at: int = 1, times: int | None = None) -> Rule:
        """Act when it is done and before the caller hears of it. `when` may look at the result."""
        return self._add(names, "after", Rule(act, when, at, times))

    def at_the_call(self, names: Names, act: Act, *, times: int | None = None) -> Rule:
        """Act when the method is called, not when its answer is awaited: stores may raise there as well."""
        return self._add(names, "at the call", Rule(act, times=times))

    def around(self, names: Names, act: Act, when: When = always, *, before: bool, **limits: Any) -> Rule:
        """`before` or `after`, as a test is parametrised."""
        return (self.before if before else self.after)(names, act, when, **limits)

    def note(self, *names: str) -> list[str]:
        """The names of these calls from now on, in the order in which they are made."""
        asked: list[str] = []
        self.at_the_call(names, lambda call: asked.append(call.name))
        return asked

    def note_turns(self, *, created: bool = True) -> list[Turn]:
        """Every turn that is to be made durable from now on; `created`: also those of new runs."""
        turns: list[Turn] = []
        names = ("commit", "create", "create_all") if created else ("commit",)
        self.at_the_call(names, lambda call: turns.extend(call.turns))
        return turns

    def _add(self, names: Names, moment: Moment, rule: Rule) -> Rule:
        for name in (names,) if isinstance(names, str) else names:
            assert callable(getattr(self._store, name)), name
            self._rules.append((name, moment, rule))
        return rule

    # -- calls -------------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._store, name)
        if not any(one == name for one, _, _ in self._rules):
            return target

        def call(*args: Any, **named: Any) -> Awaitable[Any]:
            asked = Call(name, args, named)
            for rule in self._of(name, "at the call"):
                if rule.applies(asked):
                    rule.act(asked)
            if self._of(name, "before") or self._of(name, "after"):
                return self._carry_out(asked, target)
            answer: Awaitable[Any] = target(*args, **named)
            return answer

        return call

    async def _carry_out(self, call: Call, target: Callable[..., Awaitable[Any]]) -> Any:
        await self._disturb(call, "before")
        call.result = await target(*call.args, **call.named)
        await self._disturb(call, "after")
        return call.result

    async def _disturb(self, call: Call, moment: Moment) -> None:
        for rule in self._of(call.name, moment):
            if rule.applies(call):
                waits = rule.act(call)
                if inspect.isawaitable(waits):
                    await waits

    def _of(self, name: str, moment: Moment) -> list[Rule]:
        return [rule for one, when, rule in self._rules if (one, when) == (name, moment)]


# -- what happens ------------------------------------------------------------------------------------------------------


def die(_call: Call | None = None) -> NoReturn:
    """The process is killed, as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("alive after SIGKILL")


def raising(error: type[Exception], text: str) -> Act:
    def act(_call: Call) -> NoReturn:
        raise error(text)

    return act


def unavailable() -> Act:
    """The store is out of reach."""
    return raising(StoreUnavailable, "the test said so")


def lose_answer(_call: Call) -> NoReturn:
    """For `after`: the dangerous fault, raised but committed."""
    raise StoreUnavailable("the answer got lost")


async def never(_call: Call) -> None:
    """No answer, ever."""
    await asyncio.Event().wait()


def nothing(_call: Call) -> None:
    """For rules that only count: `rule.hits`."""


class Hold:
    """Keeps the call back. `reached` is set when it is; it goes on when `release` is."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.release = asyncio.Event()

    async def __call__(self, _call: Call) -> None:
        self.reached.set()
        await self.release.wait()


# -- at which calls ----------------------------------------------------------------------------------------------------


def answered(call: Call) -> bool:
    """For `after`: the store found something."""
    return bool(call.result)


def holds(kind: str) -> When:
    """The call makes records of this kind durable; counts them."""
    return lambda call: sum(entry.row.kind == kind for turn in call.turns for entry in turn.entries)


def spawns(call: Call) -> int:
    """The call creates children; counts them."""
    return sum(isinstance(entry.effect, Spawn) for turn in call.turns for entry in turn.entries)


def records(call: Call) -> int:
    """Counts the records that the call makes durable."""
    return call.records


def any_turn(wanted: Callable[[Turn], bool]) -> When:
    return lambda call: any(wanted(turn) for turn in call.turns)


def sent_first() -> When:
    """Calls with a turn that was not sent before: what is repeated after a lost answer gets through."""
    sent: set[tuple[int, int]] = set()

    def when(call: Call) -> bool:
        found = {(turn.key, turn.expected_seq) for turn in call.turns}
        is_new = bool(found - sent)
        sent.update(found)
        return is_new

    return when


# -- outages of a store whose engine is open ---------------------------------------------------------------------------

#: Calls that a scenario makes, rather than the sweep: all of them are tried.
_TRIED_MAX = dict.fromkeys(("create", "create_all", "commit", "append", "request_cancel", "terminate", "park"), 100)
#: Sweeps come by time, so only the first few calls of theirs count.
_SWEEP_TRIED_MAX = 5


class OutageStore(wrappers.FaultyStore):
    """Without the calls of opening and closing, where the engine gives up."""

    calls = wrappers.CALLS - {"register_worker", "unregister_worker", "count_runs", "workers"}


def every_call(counts: Counter[str]) -> Iterator[tuple[str, int]]:
    """Each call of a calm run, by name and number."""
    for name, count in counts.items():
        for number in range(1, min(count, _TRIED_MAX.get(name, _SWEEP_TRIED_MAX)) + 1):
            yield name, number


# -- whole stores ------------------------------------------------------------------------------------------------------


def killed_at_record(path: str, limit: int) -> DisturbedStore:
    """On a SQLite file. Its process is killed as soon as `limit` records are durable."""
    disturbed = DisturbedStore(SQLiteStore(path))
    disturbed.after(("create_all", "commit"), die, records, at=limit)
    return disturbed


def sizes(turns: Sequence[Turn]) -> list[int]:
    """How many records each of them has."""
    return [len(turn.entries) for turn in turns]
