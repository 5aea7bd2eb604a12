"""What is recorded, how often, and with which options."""

from __future__ import annotations

import os
import random
import secrets
import time
import uuid
from datetime import datetime
from typing import Any

import pytest

from perdure import RunFailed, options, step, traverse, workflow
from perdure.errors import LostChange
from perdure.store.memory import MemoryStore
from perdure.testing import Effects, VirtualEngine, crash_everywhere
from perdure.types import FailedAttempt
from support.faulty_stores import DisturbedStore
from support.lives import Lives, run_async

done = Effects()
retried: list[str] = []


def get(n: Any) -> Any:
    done.add(f"get {n}")
    return n


def flip() -> bool:
    return random.random() < 0.5


def flaky(n: int) -> int:
    done.add("flaky")
    raise ConnectionError(f"attempt {n}")


def noted(failed: FailedAttempt) -> None:
    retried.append(f"{failed.location} {failed.attempt}")


async def kinds(flow: Any, *args: Any) -> list[tuple[str, str]]:
    async with VirtualEngine() as engine:
        await (await engine.start(flow(*args), id="run")).result()
        return [(entry.kind, entry.location) for entry in await engine.admin.history("run")][1:-1]


@workflow(auto=True)
def branches() -> list[str]:
    taken = []
    for n in range(6):
        if flip():
            taken.append(get(f"heads {n}"))
        else:
            taken.append(get(f"tails {n}"))
        if random.random() < 0.5:
            taken.append(get(f"more {n}"))
    return taken


def test_a_random_condition_replays_the_same_branch(lives: Lives) -> None:
    """CONFORMANCE A1: randomness inside a function is recorded, randomness in the workflow is seeded."""

    async def main() -> None:
        async with lives.engine() as engine:
            expected = await (await engine.start(branches(), id="run")).result()
            rows = [entry.location for entry in await engine.admin.history("run")]
        assert [one for one in rows if one.startswith("flip")] == ["flip", *(f"flip#{n}" for n in range(2, 7))]
        for limit in range(1, 14):
            other = lives.fresh()

            async def act(engine: Any) -> Any:
                return await (await engine.start(branches(), id="run")).result()

            await other.live_until(limit, act)
            async with other.engine() as engine:
                before = [
                    (e.location, e.data["value"]) for e in await engine.admin.history("run") if e.kind == "step_done"
                ]
                taken = await engine.result("run")
                after = [
                    (e.location, e.data["value"]) for e in await engine.admin.history("run") if e.kind == "step_done"
                ]
                assert after[: len(before)] == before
                heads = [one for one in after if one[0].startswith("flip")]
                for number, (_, value) in enumerate(heads):
                    assert (f"heads {number}" in taken) == value
        assert len(expected) >= 6

    run_async(main())


@workflow(auto=True)
def what_is_recorded() -> Any:
    a = get(1)
    b = [get(n) for n in range(3)]
    c = a + len(b)
    b.append(c)
    d = str(uuid.uuid4()), random.random(), datetime.now().isoformat(), time.time()
    if get(c):
        pass
    return len(d)


def test_each_call_is_one_record_and_a_comprehension_is_one() -> None:
    """CONFORMANCE A1, A2: pure expressions, methods of local values, clock and randomness cost nothing."""
    assert run_async(kinds(what_is_recorded)) == [("step_done", "get"), ("step_done", "[get]"), ("step_done", "get#2")]


@workflow(auto=True)
def reads() -> list[Any]:
    token, key = secrets.token_hex(8), os.urandom(8)
    home, process = os.environ.get("HOME"), os.getpid()
    number = hash("text")
    order = []
    for letter in {"a", "b", "c", "d"}:
        order.append(letter)
    get(1)
    more = secrets.token_urlsafe(4)
    return [token, key, home, process, number, order, more]


def test_values_that_cause_no_effect_share_a_commit() -> None:
    """Consecutive recorded values without an effect need no commit of their own."""
    commits: list[int] = []
    store = DisturbedStore(MemoryStore())
    store.at_the_call("commit", lambda call: commits.append(call.records))

    async def main() -> Any:
        async with VirtualEngine(store=store) as engine:
            result = await (await engine.start(reads(), id="run")).result()
            return result, [(e.kind, e.location) for e in await engine.admin.history("run")]

    result, rows = run_async(main())
    assert rows == [
        ("started", ""),
        ("recorded", "token_hex"),
        ("recorded", "urandom"),
        ("recorded", "get"),
        ("recorded", "getpid"),
        ("recorded", "hash"),
        ("recorded", "order"),
        ("step_done", "get#2"),
        ("recorded", "token_urlsafe"),
        ("completed", ""),
    ]
    assert len(commits) == 1, "the first turn goes with the start; then there is only the step's result"
    assert result[3] == os.getpid()


def test_what_was_read_is_read_from_the_journal(lives: Lives) -> None:
    """CONFORMANCE A1: the second life gives the values of the first, whatever the process."""

    async def main() -> None:
        async def act(engine: Any) -> Any:
            return await (await engine.start(reads(), id="run")).result()

        assert await lives.live_until(8, act)
        async with lives.engine() as engine:
            before = {e.location: e.data["value"] for e in await engine.admin.history("run") if e.kind == "recorded"}
            result = await engine.result("run")
            after = {e.location: e.data["value"] for e in await engine.admin.history("run") if e.kind == "recorded"}
        assert before.items() <= after.items()
        assert len(before) >= 6
        assert after["token_hex"] == result[0]
        assert after["order"] == result[5]

    run_async(main())


def names() -> set[str]:
    done.add("names")
    return {"ann", "bob", "cem", "dan"}


@workflow(auto=True)
async def reads_sets() -> list[Any]:
    people, waiting, taken = names(), names(), []
    while waiting:
        taken.append(waiting.pop())
    first, *_ = people
    numbered = [(n, name) for n, name in enumerate(people)]
    for name in people:
        taken.append(get(name))
    taken.extend(people)
    each = await traverse(people, get)
    pages = [await fetch(name) for name in people]
    if next(iter(people)) == "ann" and first == "ann":
        get("ann comes first")
    longest = max(people, key=len)
    return [taken, first, numbered, ", ".join(people), list(people), [*people], each, pages, longest]


async def fetch(name: str) -> str:
    done.add(f"fetch {name}")
    return name.upper()


def test_sets_are_read_in_the_recorded_order_in_every_process() -> None:
    """CONFORMANCE A1: journals replay under other hash seeds, wherever a set is read from first to last."""
    done.clear()
    report = crash_everywhere(reads_sets(), effects=done, hash_seeds=(1, 2, 3), points_max=10)
    assert sorted(report.result[0][:4]) == ["ann", "bob", "cem", "dan"]


failing: list[int] = []


def fails_once(n: int) -> int:
    done.add(f"once {n}")
    if n == 2 and not failing:
        failing.append(n)
        raise ConnectionError("once")
    return n


@workflow(auto=True, max_attempts=2, initial_delay=0.001)
def retries_over_an_iterator() -> list[Any]:
    each, other = iter([1, 2, 3]), zip([4, 2], "ab", strict=True)
    return [[fails_once(n) for n in each], [(fails_once(n), letter) for n, letter in other]]


def test_a_retried_expression_reads_its_iterators_from_the_beginning() -> None:
    """Nothing that the failed attempt had read is missing from the result."""

    async def main() -> Any:
        async with VirtualEngine() as engine:
            return await (await engine.start(retries_over_an_iterator())).result()

    failing.clear()
    assert run_async(main()) == [[1, 2, 3], [(4, "a"), (2, "b")]]


@workflow(auto=True)
def reads_an_iterator_twice() -> list[Any]:
    each = iter([1, 2, 3])
    return [[get(n) for n in each], list(each)]


@pytest.mark.parametrize("always_replay", [False, True], ids=["live", "replayed"])
def test_an_iterator_read_by_a_recorded_expression_is_not_read_again(always_replay: bool) -> None:
    """A replay would find it where it was: refused at once, with the way out, and not only after a crash."""

    async def main() -> None:
        async with VirtualEngine(always_replay=always_replay) as engine:
            with pytest.raises(RunFailed, match="make a list of it") as caught:
                await (await engine.start(reads_an_iterator_twice())).result()
        assert isinstance(caught.value.__cause__, LostChange)

    run_async(main())


class Unstorable:
    pass


@workflow(auto=True)
def reads_objects_in_any_order() -> int:
    return len([one for one in {Unstorable(), Unstorable()}])  # noqa: C416


def test_a_set_whose_order_cannot_be_recorded_fails_the_run() -> None:
    """Objects that are told apart by their address only: no process can know their order again."""

    async def main() -> None:
        async with VirtualEngine() as engine:
            with pytest.raises(RunFailed, match="order"):
                await (await engine.start(reads_objects_in_any_order())).result()

    run_async(main())


def exhausted() -> None:
    raise StopIteration("nothing more")


@workflow(auto=True, max_attempts=1)
def calls_what_is_exhausted() -> str:
    try:
        exhausted()
    except RuntimeError as error:
        return str(error)
    return "nothing raised"


def test_stop_iteration_of_a_recorded_function_arrives_as_a_runtime_error() -> None:
    """As it does from any coroutine: Python lets none raise StopIteration."""
    assert "StopIteration" in crash_everywhere(calls_what_is_exhausted(), hash_seeds=()).result


# -- options -------------------------------------------------------------------------------------------------------


@workflow(auto=True, max_attempts=2, initial_delay=0.001, on_retry=noted)
def with_options() -> list[str]:
    seen = []
    for n in range(2):
        try:
            flaky(n)
        except ConnectionError as error:
            seen.append(str(error))
    try:
        options(flaky, max_attempts=1)(9)
    except ConnectionError:
        seen.append(get("once"))
    return seen


def test_retry_options_of_the_workflow_and_of_a_call(effects: Any) -> None:
    """Options given to the decorator, or to `options(...)` around a call. CONFORMANCE A3: the fallback replays."""
    done.clear()
    retried.clear()
    result = crash_everywhere(with_options(), effects=done, hash_seeds=()).result
    assert result == ["attempt 0", "attempt 1", "once"]

    async def main() -> list[tuple[str, str]]:
        async with VirtualEngine() as engine:
            done.clear()
            await (await engine.start(with_options(), id="run")).result()
            return [(e.kind, e.location) for e in await engine.admin.history("run")][1:-1]

    rows = run_async(main())
    assert rows == [
        ("step_retry", "flaky"),
        ("step_failed", "flaky"),
        ("step_retry", "flaky#2"),
        ("step_failed", "flaky#2"),
        ("step_failed", "flaky#3"),
        ("step_done", "get"),
    ]
    assert done.counts() == {"flaky": 5, "get once": 1}
    assert "flaky 1" in retried


def test_options_outside_a_workflow_just_call() -> None:
    assert options(len, max_attempts=3)("abc") == 3


@workflow(auto=True)
def sleeps() -> float:
    before = time.time()
    time.sleep(3 * 86400)
    return time.time() - before


def test_time_sleep_is_a_durable_sleep() -> None:
    """An ordinary function becomes durable as it stands."""
    assert crash_everywhere(sleeps(), hash_seeds=()).result == pytest.approx(3 * 86400, abs=1)


@workflow(auto=True)
def sub(n: int) -> int:
    return get(n) + 1


@workflow(auto=True)
def parent() -> int:
    return sub(sub(1))


def test_a_workflow_called_in_a_plain_function_is_a_child() -> None:
    done.clear()
    assert crash_everywhere(parent(), effects=done, hash_seeds=()).result == 3


@step
def fails() -> None:
    raise OSError("no")


@workflow(auto=True)
def not_caught() -> None:
    fails.options(max_attempts=1)()


def test_what_is_not_caught_fails_the_run() -> None:
    async def main() -> None:
        async with VirtualEngine() as engine:
            with pytest.raises(RunFailed) as caught:
                await (await engine.start(not_caught())).result()
            assert isinstance(caught.value.__cause__, OSError)

    run_async(main())
