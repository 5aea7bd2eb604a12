"""Edits of a workflow while a run of it is under way, and what becomes of that run: before, after, verdict.

A text without `@workflow` is the body of one. `NAME` stands for its name; the steps are those of
`versions_of_a_file.py`, each of which leaves a line in `effects`. A run of the text before is brought to its long wait
and crashes there; what `test_changes.py` does then is what the verdict says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: The text that was there before: what somebody restores who sees the report.
RESTORED = "restored"


@dataclass(frozen=True)
class Parks:
    """Parked before any side effect. The report shows both sides, and ends with this code."""

    journal: str
    code: str
    error: str = "P-101"
    #: What is in the line that the report names, of the text before and of the text after.
    journal_at: str = ""
    code_at: str = ""
    #: What it says beside the usual way out.
    advice: tuple[str, ...] = ()
    #: With this text and `resume` it goes on and ships; None: it goes on waiting.
    then: str | None = RESTORED
    #: What was done in all its lives, if that is to be looked at.
    effects: Mapping[str, int] | None = None


@dataclass(frozen=True)
class GoesOn:
    """Not disturbed: it ships, and no recorded step runs again. `effects` are those of all its lives."""

    effects: Mapping[str, int]
    #: One more crash, with the text after, before the run is woken.
    crashes: bool = False


@dataclass(frozen=True)
class Change:
    before: str
    after: str
    verdict: Parks | GoesOn
    #: The type of the event for which the text before comes to wait; empty: a note, or some time.
    waits_for: str = field(default="")


CHARGED = "await charge(); await receive(Note); return await ship()"

#: Operations that were added, removed, renamed or moved before the place that the run had come to.
DIFFERENT = {
    "renamed at root": Change(
        CHARGED, "await reserve(); await receive(Note); return await ship()", Parks("step 'charge'", "step 'reserve'")
    ),
    "renamed in a file whose lines have moved": Change(
        """
        @workflow
        async def NAME() -> str:
            await charge()
            await receive(Note)
            return await ship()
        """,
        """
        # a comment

        @workflow
        async def NAME() -> str:
            await reserve()
            await receive(Note)
            return await ship()
        """,
        Parks("step 'charge'", "step 'reserve'", journal_at="await charge()", code_at="await reserve()"),
    ),
    "reordered at root": Change(
        "await charge(); await reserve(); await receive(Note); return await ship()",
        "await reserve(); await charge(); await receive(Note); return await ship()",
        Parks("step 'charge'", "step 'reserve'"),
    ),
    "inserted in front": Change(
        CHARGED,
        "await reserve(); await charge(); await receive(Note); return await ship()",
        Parks("step 'charge'", "step 'reserve'"),
    ),
    "inserted before the current wait": Change(
        CHARGED,
        "await charge(); await notify(); await receive(Note); return await ship()",
        Parks("receive 'receive'", "step 'notify'"),
    ),
    "removed from the middle": Change(
        "await charge(); await reserve(); await receive(Note); return await ship()",
        CHARGED,
        Parks("step 'reserve'", "receive 'receive'"),
    ),
    "removed current wait": Change(
        CHARGED, "await charge(); return await ship()", Parks("receive 'receive'", "step 'ship'")
    ),
    "a step became a sleep": Change(
        CHARGED,
        "await sleep(3600, name='charge'); await receive(Note); return await ship()",
        Parks("step 'charge'", "timer 'charge'"),
    ),
    "a received event of another type": Change(
        "await send(info().id, Tick(1)); await receive(Tick); await receive(Note); return await ship()",
        "await send(info().id, Tick(1)); await receive(Stop); await receive(Note); return await ship()",
        Parks("receive 'receive'", "receive 'receive' of 'tests.stop'"),
    ),
    "the wait became a step": Change(
        "await charge(); await receive(Note, name='ship'); return await ship()",
        "await charge(); return await ship()",
        Parks("receive 'ship'", "step 'ship'"),
    ),
    "renamed in a loop": Change(
        """
        for _ in range(3):
            await charge()
            await reserve()
        await receive(Note)
        return await ship()
        """,
        """
        for _ in range(3):
            await charge()
            await notify()
        await receive(Note)
        return await ship()
        """,
        Parks("step 'reserve'", "step 'notify'"),
    ),
    "one iteration less": Change(
        """
        for _ in range(3):
            await charge()
        await receive(Note)
        return await ship()
        """,
        """
        for _ in range(2):
            await charge()
        await receive(Note)
        return await ship()
        """,
        Parks("step 'charge#3'", "receive 'receive'"),
    ),
    "renamed in a branch of gather": Change(
        """
        async def pay() -> None:
            await charge()
            await reserve()

        @workflow
        async def NAME() -> str:
            await asyncio.gather(pay(), notify())
            await receive(Note)
            return await ship()
        """,
        """
        async def pay() -> None:
            await charge()
            await ship()

        @workflow
        async def NAME() -> str:
            await asyncio.gather(pay(), notify())
            await receive(Note)
            return await ship()
        """,
        Parks("step 'pay/reserve'", "step 'pay/ship'"),
    ),
    "renamed in a created task": Change(
        "await asyncio.create_task(charge()); await receive(Note); return await ship()",
        "await asyncio.create_task(reserve()); await receive(Note); return await ship()",
        Parks("step 'charge'", "step 'reserve'"),
    ),
    "removed from a try": Change(
        """
        try:
            await charge()
            await reserve()
        except Exception:
            await notify()
        await receive(Note)
        return await ship()
        """,
        """
        try:
            await reserve()
        except Exception:
            await notify()
        await receive(Note)
        return await ship()
        """,
        Parks("step 'charge'", "step 'reserve'"),
    ),
    "renamed in a try that catches everything": Change(
        """
        try:
            await charge()
        except BaseException:
            await notify()
        await receive(Note)
        return await ship()
        """,
        """
        try:
            await reserve()
        except BaseException:
            await notify()
        await receive(Note)
        return await ship()
        """,
        Parks("step 'charge'", "step 'reserve'"),
    ),
    "another type of event at the wait": Change(
        CHARGED,
        "await charge(); await receive(Stop); return await ship()",
        # The event that was sent meanwhile is kept.
        Parks(
            "receive 'receive' of 'tests.note'",
            "receive 'receive' of 'tests.stop'",
            then="await charge(); await receive(Note, Stop); return await ship()",
        ),
    ),
    "asleep, and the sleep became a receive": Change(
        "await charge(); await sleep(3600); return await ship()",
        "await charge(); await receive(Stop); return await ship()",
        Parks("timer 'sleep'", "receive 'receive' of 'tests.stop'", then=None),
    ),
    "in a backoff of a step that is gone": Change(
        "await charge(); await flaky(); return await ship()",
        "await charge(); await reserve(); return await ship()",
        Parks("step 'flaky'", "step 'reserve'", then=None),
    ),
}

RAISED = "the workflow function raised KeyError: 'no such customer'"

#: The text after comes to an end before it has come to the place of the run.
ENDS_EARLY = {
    "records are left over": Change(
        "await charge(); await reserve(); await notify(); await receive(Note); return await ship()",
        "return await charge()",
        Parks("step 'reserve' and 1 more", "ended"),
    ),
    "only the wait is left over": Change(CHARGED, "return await charge()", Parks("receive 'receive'", "ended")),
    "raises before a record": Change(
        CHARGED,
        """
        raise KeyError('no such customer')
        await receive(Note)
        return await ship()
        """,
        Parks("step 'charge'", RAISED, code_at="raise KeyError"),
    ),
    "raises before the wait": Change(
        CHARGED,
        """
        await charge()
        raise KeyError('no such customer')
        return await ship()
        """,
        Parks("receive 'receive'", RAISED, code_at="raise KeyError"),
    ),
}

PLAIN = """
    async def pay(cents):
        receipt = await charge(cents)
        return receipt

    async def prepare() -> None:
        await reserve()
        await notify()

    @workflow
    async def NAME() -> str:
        receipt = await pay(5)
        await asyncio.gather(prepare(), notify())
        async with asyncio.timeout(3600):
            await receive(Note)
        return await ship()
    """
PLAIN_EFFECTS = {"charge": 1, "reserve": 1, "notify": 2, "ship": 1}

SCOPES = """
    @workflow
    async def NAME() -> str:
        async with asyncio.timeout(3600):
            async with asyncio.TaskGroup() as group:
                group.create_task(charge())
                group.create_task(reserve())
        try:
            async with asyncio.timeout(0.001):
                await receive(Stop)
        except TimeoutError:
            await notify()
        await asyncio.wait({asyncio.create_task(charge()), asyncio.create_task(receive(Stop))},
                           return_when=asyncio.FIRST_COMPLETED)
        await receive(Note)
        return await ship()
    """

#: What a replay does not see: the run goes on with the text after.
HARMLESS = {
    "comments and blank lines": Change(
        PLAIN,
        """
        # a comment in front


        async def pay(cents):
            # why
            receipt = await charge(cents)

            return receipt

        async def prepare() -> None:
            await reserve()  # first
            await notify()

        @workflow
        async def NAME() -> str:
            '''A docstring.'''
            receipt = await pay(5)

            # both at once
            await asyncio.gather(prepare(), notify())
            async with asyncio.timeout(3600):
                await receive(Note)
            return await ship()
        """,
        GoesOn(PLAIN_EFFECTS),
    ),
    "helpers moved and renamed": Change(
        PLAIN,
        """
        @workflow
        async def NAME() -> str:
            receipt = await collect_money(5)
            await asyncio.gather(prepare(), notify())
            async with asyncio.timeout(3600):
                await receive(Note)
            return await ship()

        async def prepare() -> None:
            await reserve()
            await notify()

        async def collect_money(cents):
            return await charge(cents)
        """,
        GoesOn(PLAIN_EFFECTS),
    ),
    "a helper inlined": Change(
        PLAIN,
        """
        async def prepare() -> None:
            await reserve()
            await notify()

        @workflow
        async def NAME() -> str:
            await charge(5)
            await asyncio.gather(prepare(), notify())
            async with asyncio.timeout(3600):
                await receive(Note)
            return await ship()
        """,
        GoesOn(PLAIN_EFFECTS),
    ),
    "variables renamed": Change(
        PLAIN,
        """
        async def pay(amount):
            paper = await charge(amount)
            return paper

        async def prepare() -> None:
            await reserve()
            await notify()

        @workflow
        async def NAME() -> str:
            slip = await pay(5)
            both = await asyncio.gather(prepare(), notify())
            async with asyncio.timeout(3600):
                note = await receive(Note)
            return await ship()
        """,
        GoesOn(PLAIN_EFFECTS),
    ),
    "code after the current wait changed": Change(
        PLAIN,
        """
        async def pay(cents):
            receipt = await charge(cents)
            return receipt

        async def prepare() -> None:
            await reserve()
            await notify()

        @workflow
        async def NAME() -> str:
            receipt = await pay(5)
            await asyncio.gather(prepare(), notify())
            async with asyncio.timeout(3600):
                await receive(Note)
            await reserve()
            await sleep(0.001)
            return await ship()
        """,
        GoesOn(PLAIN_EFFECTS | {"reserve": 2}),
    ),
    "TaskGroup instead of gather": Change(
        PLAIN,
        """
        async def pay(cents):
            return await charge(cents)

        async def prepare() -> None:
            await reserve()
            await notify()

        @workflow
        async def NAME() -> str:
            receipt = await pay(5)
            async with asyncio.TaskGroup() as group:
                group.create_task(prepare())
                group.create_task(notify())
            async with asyncio.timeout(3600):
                await receive(Note)
            return await ship()
        """,
        GoesOn(PLAIN_EFFECTS),
    ),
    "a try around it": Change(
        PLAIN,
        """
        async def pay(cents):
            return await charge(cents)

        async def prepare() -> None:
            await reserve()
            await notify()

        @workflow
        async def NAME() -> str:
            try:
                receipt = await pay(5)
                await asyncio.gather(prepare(), notify())
                async with asyncio.timeout(3600):
                    await receive(Note)
            except LookupError:
                return "lost"
            return await ship()
        """,
        GoesOn(PLAIN_EFFECTS),
    ),
    "other options of a step": Change(
        PLAIN,
        """
        async def pay(cents):
            return await charge.options(max_attempts=9, timeout=60)(cents)

        async def prepare() -> None:
            await reserve()
            await notify()

        @workflow
        async def NAME() -> str:
            receipt = await pay(5)
            await asyncio.gather(prepare(), notify())
            async with asyncio.timeout(7200):
                await receive(Note)
            return await ship()
        """,
        GoesOn(PLAIN_EFFECTS),
    ),
    # Timeouts, groups and tries that were left before the wait leave nothing to compare.
    "moved down below scopes that were left": Change(
        SCOPES,
        f"# moved down\n\n{SCOPES}",
        GoesOn({"charge": 2, "reserve": 1, "notify": 1, "ship": 1}),
        waits_for="tests.note",
    ),
}

GUARDED = """
    if patched("reserve-first"):
        await reserve()
    await charge()
    await receive(Note)
    return await ship()
    """
UNGUARDED = GUARDED.replace('patched("reserve-first")', "True")

#: `patched`: the run was past the change, or is guarded against it. Runs of several deploys: `test_patched.py`.
PATCHED = {
    "a run that was past a guarded change": Change(CHARGED, GUARDED, GoesOn({"charge": 1, "ship": 1})),
    # A change that nobody guarded, and a patch that was retired while a run from before it is open, are the same.
    "not guarded, and then it is": Change(
        CHARGED,
        UNGUARDED,
        Parks("step 'charge'", "step 'reserve'", then=GUARDED, effects={"charge": 1, "ship": 1}),
    ),
    # A recorded answer that nobody asks for is ignored, over a crash too.
    "a patch that no open run needs is retired": Change(
        GUARDED, UNGUARDED, GoesOn({"reserve": 1, "charge": 1, "ship": 1}, crashes=True)
    ),
}


def _without(gone: str, instead: str, effects: Mapping[str, int], *, waits_for: str = "tests.note") -> Change:
    """An operation that `removed` declares to be gone. `waits_for`: what is gone is what the run waits for."""
    wait = "await receive(Note)" if waits_for == "tests.note" else "pass"
    text = f"""
        @workflow
        async def NAME_child() -> str:
            return "grown up"

        @workflow
        async def NAME() -> str:
            await charge()
            HERE
            {wait}
            return await ship()
        """
    verdict = GoesOn({"charge": 1, "ship": 1, **effects})
    return Change(text.replace("HERE", gone), text.replace("HERE", instead), verdict, waits_for)


NOTIFIED = "await charge(); await notify(); await receive(Note); return await ship()"
NOTIFIED_BEFORE = "await charge(); removed('notify'); await receive(Note); return await ship()"
THREE_WAITS = "await charge(); await asyncio.gather(receive(Note), flaky(), asyncio.sleep(7200)); return await ship()"
ONE_WAIT = "await asyncio.gather(receive(Note)); return await ship()"

#: `removed`: journals speak of an operation that is gone from the code. Whether the run was past it or still waits for
#: it, it goes on; what it waited for is withdrawn.
REMOVED = {
    "a step": _without("await notify()", 'removed("notify")', {"notify": 1}),
    "a step in a backoff": _without("await flaky()", 'removed("flaky")', {"flaky": 1}, waits_for=""),
    "a sleep that is over": _without("await asyncio.sleep(0.001)", 'removed("sleep", "timer")', {}),
    "a sleep": _without("await asyncio.sleep(7200)", 'removed("sleep", "timer")', {}, waits_for=""),
    "a receive": _without("await receive(Tick)", 'removed("receive", "receive")', {}, waits_for="tests.tick"),
    "a child": _without("await NAME_child()", 'removed("NAME_child", "child")', {}),
    "a send": _without('await send("friend", Tick(1))', 'removed("send", "send")', {}),
    "a step with a name": _without('await notify.options(name="tell")()', 'removed("tell")', {"notify": 1}),
    "a step in a task": _without(
        "await asyncio.gather(notify(), charge(2))",
        'removed("notify"); await charge(2)',
        {"notify": 1, "charge": 2},
    ),
    "the first of two": _without("await notify(); await notify()", 'removed("notify"); await notify()', {"notify": 2}),
    "removed and still called": Change(
        NOTIFIED,
        "await charge(); removed('notify'); await notify(); await receive(Note); return await ship()",
        Parks(
            "receive 'receive' of 'tests.note'",
            "step 'notify#2'",
            advice=("removed('notify') in orders.py:", "drop one of the two"),
            then=NOTIFIED_BEFORE,
            effects={"charge": 1, "notify": 1, "ship": 1},
        ),
    ),
    "something else vanished with it": Change(
        THREE_WAITS,
        f"await charge(); removed('flaky'); {ONE_WAIT}",
        Parks(
            "timer 'sleep'",
            "nothing in its place",
            then=f"await charge(); removed('flaky'); removed('sleep', 'timer'); {ONE_WAIT}",
            effects={"charge": 1, "flaky": 1, "ship": 1},
        ),
    ),
    # A declaration that does not fit the journal is a divergence like any other.
    "removed with the wrong kind": Change(
        NOTIFIED,
        "await charge(); removed('notify', 'child'); await receive(Note); return await ship()",
        Parks("step 'notify'", "receive 'receive'"),
    ),
}

TABLE = {
    f"{group}: {name}": change
    for group, changes in {
        "different": DIFFERENT,
        "ends early": ENDS_EARLY,
        "harmless": HARMLESS,
        "patched": PATCHED,
        "removed": REMOVED,
    }.items()
    for name, change in changes.items()
}
