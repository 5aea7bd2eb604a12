"""Every public call, given a hostile value in one of its places.

Each function here is one call. It takes the world and its draws; returning means that the call worked, and where the
value comes back, that it is the same. `outside` calls the engine, `inside` runs in workflow code.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

import perdure
from fuzz.hostile import TEXTS, Draws, Unknown, canon
from fuzz.workflows import (
    ACTIONS,
    MADE,
    TYPED,
    Letter,
    Question,
    acts,
    adds,
    answers,
    echo,
    fails,
    forks,
    ordinary,
    raises,
    raises_in_thread,
    returns,
    returns_in_thread,
    waits,
)
from perdure import Engine, event, receive, receive_many, state, status, step, storable, workflow
from perdure.admin import transfer
from perdure.authoring.options import Options
from perdure.engine.settings import Settings

Act = Callable[["World", Draws], Awaitable[Any]]

OUTSIDE: dict[str, Act] = {}
INSIDE: dict[str, Callable[[World, Draws, int], Awaitable[Any]]] = {}
#: Calls whose value may be a good one for a long wait: given up soon, and then the run is ended.
MAY_WAIT: set[str] = set()


class World:
    """An engine, and runs of every kind on it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.number = 0

    async def prepare(self) -> None:
        start = self.engine.start
        self.done = (await start(forks(), id="done")).id
        await self.engine.result(self.done, 20)
        self.failed = (await start(fails(), id="failed")).id
        self.waiting = (await start(waits(), id="waiting")).id
        self.export = await self.engine.admin.export_run(self.done)

    async def a_run(self) -> str:
        """A run that waits, to be harmed."""
        return (await self.engine.start(waits())).id

    def next(self) -> int:
        self.number += 1
        return self.number


class Lost(AssertionError):
    """A value that did not come back as it was."""


def same(before: Any, after: Any) -> None:
    try:
        expected = canon(before)
    except Unknown as unknown:
        raise Lost(f"a value that holds {unknown} was stored") from None
    found = canon(after)
    if expected != found and not _int_as_float(before, after):
        raise Lost(f"{expected!r:.300} came back as {found!r:.300}")


def _int_as_float(before: Any, after: Any) -> bool:
    return isinstance(after, float) and isinstance(before, int) and int.__float__(before) == after


def outside(function: Act) -> Act:
    OUTSIDE[function.__name__] = function
    return function


def inside(function: Callable[[World, Draws, int], Awaitable[Any]]) -> Any:
    INSIDE[function.__name__] = function
    return function


async def run_inside(name: str, world: World, draws: Draws) -> Any:
    """Do one of `INSIDE` in a run. What it raised is raised here."""
    number = world.next()
    outcome: list[BaseException | None] = []

    async def action() -> str:
        try:
            await INSIDE[name](world, draws, number)
        except Exception as error:
            outcome.append(error)
            return "raised"
        outcome.append(None)
        return "worked"

    ACTIONS[number] = action
    handle = await world.engine.start(acts(number))
    try:
        await handle.result(0.05 if name in MAY_WAIT else 30)
    except TimeoutError:
        if name not in MAY_WAIT:
            raise
        await world.engine.admin.terminate(handle.id)
    finally:
        ACTIONS.pop(number, None)
        MADE.pop(number, None)
    if outcome and outcome[0] is not None:
        raise outcome[0]


# -- arguments and results ---------------------------------------------------------------------------------------------


@outside
async def workflow_argument(world: World, draws: Draws) -> None:
    value = draws.value()
    made = draws.rng.choice(list(TYPED.values()))[0]
    call = made(value) if draws.rng.random() < 0.7 else made(value=value)
    same(value, await (await world.engine.start(call)).result(20))


@outside
async def workflow_arguments_wrong(world: World, draws: Draws) -> None:
    await world.engine.start(ordinary(draws.value(), **{draws.rng.choice(("number", "caf\udce9", "x")): draws.value()}))


@inside
async def step_argument(world: World, draws: Draws, number: int) -> None:
    value = draws.value()
    same(value, await draws.rng.choice((echo, *(each[1] for each in TYPED.values())))(value))


@inside
async def step_result(world: World, draws: Draws, number: int) -> None:
    MADE[number] = value = draws.value()
    same(value, await draws.rng.choice((returns, returns_in_thread, *(each[2] for each in TYPED.values())))(number))


@inside
async def step_error(world: World, draws: Draws, number: int) -> None:
    MADE[number] = draws.error(2)
    await _failing(draws.rng.choice((raises, raises_in_thread))(number))


@inside
async def step_error_with_odd_policy(world: World, draws: Draws, number: int) -> None:
    MADE[number] = draws.error(2)
    hook, value = draws.rng.choice(("retry_on", "on_retry")), draws.value()
    await _failing(raises.options(**{hook: lambda _error: value})(number))  # type: ignore[misc]


async def _failing(call: Awaitable[Any]) -> None:
    try:
        await call
    except Exception as error:
        repr_of = type(error).__name__  # rebuilt, or a StepFailed in its place: either can be named
        assert isinstance(repr_of, str)
        return
    raise Lost("the step did not fail")


@outside
async def workflow_result(world: World, draws: Draws) -> None:
    number, value = world.next(), draws.value()

    async def action() -> Any:
        return value

    ACTIONS[number] = action
    same(value, await (await world.engine.start(acts(number))).result(20))


@outside
async def workflow_error(world: World, draws: Draws) -> None:
    number, error = world.next(), draws.error(2)

    async def action() -> Any:
        raise error

    ACTIONS[number] = action
    try:
        await (await world.engine.start(acts(number))).result(20)
    except perdure.RunFailed as failed:
        str(failed)
        return
    raise Lost("the run did not fail")


@inside
async def child_argument(world: World, draws: Draws, number: int) -> None:
    value = draws.value()
    same(value, await TYPED["any"][0](value))


@inside
async def continue_as_value(world: World, draws: Draws, number: int) -> None:
    await perdure.continue_as(draws.rng.choice((ordinary, TYPED["any"][0])), draws.value())


# -- state, status, log ------------------------------------------------------------------------------------------------


@inside
async def state_value(world: World, draws: Draws, number: int) -> None:
    key, value = draws.rng.choice(("key", draws.text())), draws.value()
    state[key] = value
    await adds(1)
    canon(state[key])


@inside
async def state_key(world: World, draws: Draws, number: int) -> None:
    state[draws.value()] = 1
    await adds(1)


@inside
async def status_value(world: World, draws: Draws, number: int) -> None:
    status(draws.value())
    await adds(1)


@inside
async def log_line(world: World, draws: Draws, number: int) -> None:
    perdure.log.info(draws.value(), draws.value())
    perdure.log.warning("%s", draws.value())
    await adds(1)


# -- events ------------------------------------------------------------------------------------------------------------


@outside
async def send_body(world: World, draws: Draws) -> None:
    value, run_id = draws.value(), await world.a_run()
    await world.engine.send(run_id, Letter(value))
    same(value, await world.engine.result(run_id, 20))


@outside
async def send_anything(world: World, draws: Draws) -> None:
    await world.engine.send(draws.rng.choice((world.waiting, draws.value())), draws.value())


@outside
async def send_key(world: World, draws: Draws) -> None:
    await world.engine.send(await world.a_run(), Letter(1), key=draws.value())


@outside
async def publish_body(world: World, draws: Draws) -> None:
    await world.engine.publish(draws.rng.choice((Letter, Question))(draws.value()))


@outside
async def publish_anything(world: World, draws: Draws) -> None:
    await world.engine.publish(draws.value(), key=draws.value())


@outside
async def request_body(world: World, draws: Draws) -> None:
    value, run = draws.value(), await world.engine.start(answers())
    same(value, await world.engine.request(run.id, Question(value), timeout=20))


@outside
async def request_odd(world: World, draws: Draws) -> None:
    chosen = draws.rng.randrange(3)
    given = draws.value()
    await world.engine.request(
        given if chosen == 0 else world.done,
        Question(1),
        timeout=given if chosen == 1 else 20,
        key=given if chosen == 2 else None,
    )


@outside
async def published_page(world: World, draws: Draws) -> None:
    await world.engine.admin.published(**{draws.rng.choice(("type", "limit", "after")): draws.value()})


@outside
async def dead_letters_page(world: World, draws: Draws) -> None:
    await world.engine.admin.dead_letters(**{draws.rng.choice(("type", "limit", "after")): draws.value()})


@outside
async def replay_dead_letter(world: World, draws: Draws) -> None:
    await world.engine.admin.replay_dead_letter(
        draws.rng.choice((1, draws.value())), draws.rng.choice((None, draws.value()))
    )


@outside
async def remove_dead_letters(world: World, draws: Draws) -> None:
    await world.engine.admin.remove_dead_letters(draws.value(), draws.value())


@inside
async def send_inside(world: World, draws: Draws, number: int) -> None:
    chosen, given = draws.rng.randrange(4), draws.value()
    await perdure.send(
        given if chosen == 0 else world.waiting,
        given if chosen == 1 else Letter(1) if chosen else Letter(given),
        key=given if chosen == 2 else "k",
        name=given if chosen == 3 else "send",
    )


@inside
async def publish_inside(world: World, draws: Draws, number: int) -> None:
    given = draws.value()
    await perdure.publish(
        draws.rng.choice((Letter(given), Question(given), given)), name=draws.rng.choice(("publish", given))
    )


@inside
async def reply_inside(world: World, draws: Draws, number: int) -> None:
    await perdure.reply(draws.rng.choice((Letter(1), draws.value())), draws.value())


@inside
async def receive_inside(world: World, draws: Draws, number: int) -> None:
    given = draws.value()
    await receive(
        *draws.rng.choice(((Letter,), (given,), (Letter, given), (Letter, Letter), ())),
        timeout=draws.rng.choice((0, 0, given)),
        match=draws.rng.choice((None, given)),
        name=draws.rng.choice(("receive", given)),
    )


@inside
async def receive_many_inside(world: World, draws: Draws, number: int) -> None:
    given = draws.value()
    await receive_many(Letter, max=draws.rng.choice((1, given)), timeout=draws.rng.choice((0, given)))


MAY_WAIT |= {"receive_inside", "receive_many_inside"}

# -- runs by their ids -------------------------------------------------------------------------------------------------


@outside
async def start_odd(world: World, draws: Draws) -> None:
    chosen = draws.rng.randrange(3)
    if chosen == 0:
        await world.engine.start(draws.value())
    elif chosen == 1:
        given = draws.rng.choice((draws.text, draws.value))()
        handle = await world.engine.start(ordinary(1), id=given)
        assert type(handle.id) is str
        assert await handle.result(20) == 3
    else:
        await world.engine.start(ordinary(1), id=draws.rng.choice(("done", "new")), on_conflict=draws.value())


@outside
async def by_id(world: World, draws: Draws) -> None:
    engine, admin, given = world.engine, world.engine.admin, draws.rng.choice((draws.text, draws.value))()
    await draws.rng.choice((
        engine.status, admin.history, admin.why, engine.cancel, admin.terminate, admin.resume, admin.pause,
        admin.unpause, admin.retry, admin.fork, admin.delete, admin.export_run,
        lambda run_id: engine.result(run_id, 0.5), lambda run_id: engine.get(run_id).status(),
    ))(given)  # fmt: skip


@outside
async def with_odd_details(world: World, draws: Draws) -> None:
    engine, given, run_id = world.engine, draws.value(), await world.a_run()
    await draws.rng.choice((
        lambda: engine.cancel(run_id, given), lambda: engine.admin.terminate(run_id, given),
        lambda: engine.admin.pause(run_id, given),
        lambda: engine.admin.retry(run_id, given), lambda: engine.admin.history(run_id, generation=given),
        lambda: engine.get(world.done).result(given), lambda: engine.result(world.done, given),
        lambda: engine.get(run_id).cancel(given), lambda: engine.get(run_id).send(given, key=given),
    ))()  # fmt: skip
    await engine.status(run_id)
    await engine.admin.history(run_id)
    await engine.admin.why(run_id)


@outside
async def fork_result(world: World, draws: Draws) -> None:
    value = draws.value()
    forked = world.engine.get(await world.engine.admin.fork(world.done, at="echo", result=value))
    if value is not ...:
        same(value, await forked.result(20))


@outside
async def fork_odd(world: World, draws: Draws) -> None:
    name = draws.rng.choice(("id", "at", "arguments", "generation", "paused"))
    given = (
        {draws.rng.choice(TEXTS): draws.value()} if name == "arguments" and draws.rng.random() < 0.5 else draws.value()
    )
    await world.engine.admin.fork(world.done, **{name: given})


@outside
async def list_runs(world: World, draws: Draws) -> None:
    name = draws.rng.choice(("status", "workflow", "id_prefix", "limit", "after"))
    given = [draws.value()] if name == "status" and draws.rng.random() < 0.5 else draws.value()
    await world.engine.list(**{name: given})


@outside
async def prune_runs(world: World, draws: Draws) -> None:
    name = draws.rng.choice(("older_than", "status", "workflow"))
    await world.engine.admin.prune(**{"older_than": "30 days", name: draws.value()})


@outside
async def check_workflow(world: World, draws: Draws) -> None:
    [checked async for checked in world.engine.admin.check(draws.value())]


@outside
async def import_odd(world: World, draws: Draws) -> None:
    name = draws.rng.choice(("data", "id", "source", "paused"))
    given = {"data": world.export, "id": f"imported-{world.next()}", name: draws.value()}
    await world.engine.admin.import_run(given.pop("data"), **given)


@outside
async def import_damaged(world: World, draws: Draws) -> None:
    body: Any = json.loads(world.export)["body"]
    _damage(body, draws)
    data = json.dumps(body).encode()
    file = transfer.File(transfer.FORMAT, transfer.VERSION, transfer._checksum(data), msgspec.Raw(data))
    handle = world.engine.get(
        await world.engine.admin.import_run(msgspec.json.encode(file), id=f"imported-{world.next()}")
    )
    await world.engine.admin.history(handle.id)
    await world.engine.admin.why(handle.id)
    await world.engine.admin.export_run(handle.id)


def _damage(data: Any, draws: Draws) -> None:
    """Replace something somewhere."""
    rng = draws.rng
    while True:
        place = rng.choice(list(data)) if isinstance(data, dict) else rng.randrange(len(data))
        if isinstance(data[place], (dict, list)) and data[place] and rng.random() < 0.8:
            data = data[place]
            continue
        data[place] = rng.choice((None, -1, 2**70, 1.5, rng.choice(TEXTS), [], {}, [[]] * 3, True))
        return


# -- verbs of workflow code --------------------------------------------------------------------------------------------


@inside
async def sleep_inside(world: World, draws: Draws, number: int) -> None:
    given = draws.rng.choice((draws.value, draws.number, draws.text, draws.other))()
    await perdure.sleep(given, name=draws.rng.choice(("sleep", draws.value())))


@inside
async def sleep_until_inside(world: World, draws: Draws, number: int) -> None:
    await perdure.sleep_until(draws.rng.choice((draws.value, draws.other))())


MAY_WAIT |= {"sleep_inside", "sleep_until_inside"}


@inside
async def cancel_inside(world: World, draws: Draws, number: int) -> None:
    given = draws.value()
    await perdure.cancel(draws.rng.choice(("nobody", given)), given)


@inside
async def start_child_inside(world: World, draws: Draws, number: int) -> None:
    given = draws.rng.choice((draws.text, draws.value))()
    child = await perdure.start_child(
        draws.rng.choice((ordinary(1), given)),
        id=draws.rng.choice((None, given)),
        detach=draws.rng.choice((False, given)),
    )
    await child


@inside
async def wait_for_run_inside(world: World, draws: Draws, number: int) -> None:
    given = draws.value()
    await perdure.wait_for_run(draws.rng.choice((world.done, given)), result=draws.rng.choice((None, given)))


@inside
async def wait_for_any_inside(world: World, draws: Draws, number: int) -> None:
    given = draws.value()
    run_ids = draws.rng.choice(([world.done, "nobody"], given, [world.done, given]))
    await perdure.wait_for_any(run_ids, result=draws.rng.choice((None, given)))


@inside
async def patches_inside(world: World, draws: Draws, number: int) -> None:
    perdure.patched(draws.rng.choice((draws.text, draws.value))())
    perdure.removed(draws.rng.choice((draws.text, draws.value))(), draws.rng.choice(("step", draws.value())))
    await adds(1)


@inside
async def race_inside(world: World, draws: Draws, number: int) -> None:
    given = draws.value()
    branch = {draws.rng.choice(("one", "caf\udce9")): draws.rng.choice((adds(1), given))}
    await perdure.race(draws.rng.choice(("race", given)), **branch)


@inside
async def join_inside(world: World, draws: Draws, number: int) -> None:
    given = draws.value()
    name, settle = draws.rng.choice(("join", given)), draws.rng.choice((True, given))
    await perdure.join(name, settle=settle, one=draws.rng.choice((adds(1), given)))


@inside
async def attempt_inside(world: World, draws: Draws, number: int) -> None:
    await perdure.attempt(draws.value())


@inside
async def saga_inside(world: World, draws: Draws, number: int) -> None:
    given = draws.value()
    async with perdure.saga(draws.rng.choice(("saga", given))) as saga:
        await saga.do(draws.rng.choice((adds(1), given)), undo=draws.rng.choice((None, adds, given)))


@inside
async def traverse_inside(world: World, draws: Draws, number: int) -> None:
    given = draws.value()
    await perdure.traverse(draws.rng.choice(([1, 2], given, [given])), draws.rng.choice((adds, given)))


#: Calls that have to run what they are given: what that raises may come out.
RUN_CODE = {"race_inside", "join_inside", "attempt_inside", "saga_inside", "traverse_inside"}


@inside
async def step_options_inside(world: World, draws: Draws, number: int) -> None:
    name = draws.rng.choice(list(Options.__annotations__))
    if name == "isolation":  # a process for each would take too long
        name = "factor"
    await adds.options(**{name: draws.value()})(1)  # type: ignore[misc]


MAY_WAIT |= {"wait_for_run_inside", "wait_for_any_inside", "start_child_inside"}

# -- definitions -------------------------------------------------------------------------------------------------------


@outside
async def define_step(world: World, draws: Draws) -> None:
    async def function(value: Any) -> Any:
        return value

    if draws.rng.random() < 0.5:
        made = step(**{draws.rng.choice(list(Options.__annotations__)): draws.value()})(function)  # type: ignore[misc]
        repr(made)
    else:
        step(draws.value())


@outside
async def define_workflow(world: World, draws: Draws) -> None:
    async def function(value: Any) -> Any:
        return value

    chosen = draws.rng.randrange(3)
    if chosen == 0:
        name = draws.rng.choice(("name", "version", "cancel_grace", "auto"))
        repr(workflow(**{"name": f"defined-{world.next()}", name: draws.value()})(function))
    elif chosen == 1:
        workflow(draws.value())
    else:
        await annotated(world, draws)


async def annotated(world: World, draws: Draws) -> None:
    """A workflow whose annotation is anything."""

    async def function(value: Any) -> Any:
        return value

    function.__annotations__ = {"value": draws.value(), "return": draws.value()}
    number = world.next()
    given: Any = draws.value(1)
    made: Any = workflow(name=f"annotated-{number}", version=f"{id(world)}")(function)
    await (await world.engine.start(made(given))).result(20)


@outside
async def define_event(world: World, draws: Draws) -> None:
    name = draws.rng.choice(("name", "delivery", "consume", "expires", "undelivered"))
    decorate = event(**{"name": f"event-{world.next()}", name: draws.value()})
    target: Any = type("Defined", (), {}) if draws.rng.random() < 0.5 else draws.value()
    decorate(target)


@outside
async def define_storable(world: World, draws: Draws) -> None:
    name = draws.rng.choice(("cls", "name", "encode", "decode", "upcast"))
    given = {
        "cls": type("Stored", (), {}),
        "name": f"stored-{world.next()}",
        "encode": vars,
        "decode": dict,
        name: draws.value(),
    }
    cls: Any = given.pop("cls")
    storable(cls, **given)
    instance = object.__new__(cls)
    same(instance, await (await world.engine.start(TYPED["any"][0](instance))).result(20))


@outside
async def make_engine(world: World, draws: Draws) -> None:
    chosen = draws.rng.randrange(3)
    if chosen == 0:
        Engine(draws.value())
    elif chosen == 1:
        Engine(":memory:", **{draws.rng.choice(Settings.__struct_fields__): draws.value()})
    else:
        async with Engine(":memory:", name=draws.value()) as engine:
            assert await (await engine.start(ordinary(1))).result(20) == 3
            await engine.close(draws.value())
