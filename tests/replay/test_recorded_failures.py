"""A recorded failure is raised again as what it was; deciding about retries happens once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel.kernel_kit import Drive
from perdure import Engine, event, receive, step, workflow
from perdure.types import FailedAttempt
from support.effects import Effects
from support.lives import Lives, run_async, until


class CardError(Exception):
    pass


class CardDeclined(CardError):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@event
@dataclass
class Continue:
    pass


_files: dict[str, Effects] = {}


def worth_trying(error: BaseException) -> bool:
    _files["effects"].add("predicate")
    return True


def hook(failed: FailedAttempt) -> None:
    _files["effects"].add(f"hook {failed.attempt}")


@step(max_attempts=2, initial_delay=0, retry_on=worth_trying, on_retry=hook)
async def charge(code: int) -> None:
    _files["effects"].add("charge")
    raise CardDeclined(code)


@workflow
async def pay() -> list[str]:
    caught = []
    try:
        await charge(51)
    except CardError as error:
        caught = [type(error).__qualname__, str(getattr(error, "code", None)), str(error.args)]
    await receive(Continue)
    return caught


@workflow
async def pay_once() -> str:
    try:
        await charge(51)
    except CardError as error:
        return f"{type(error).__name__} {error.args}"
    return "paid"


def test_a_recorded_failure_is_raised_as_the_same_type(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE R4: `except BaseClass` matches on replay as it did live, with args and attributes."""
    _files["effects"] = effects

    async def main() -> None:
        engine = await lives.engine().open()
        await engine.start(pay(), id="run")
        await until(lambda: _receiving(engine))
        before = effects.lines()
        assert before.count("charge") == 2
        await lives.crash(engine)
        async with lives.engine() as engine:
            await engine.send("run", Continue())
            assert await engine.result("run") == ["CardDeclined", "51", "(51,)"]
        assert effects.lines() == before

    run_async(main())


async def _receiving(engine: Engine) -> bool:
    return any(wait.kind == "receive" for wait in (await engine.status("run")).waiting)


def test_the_retry_logic_does_not_run_on_replay(tmp_path: Path) -> None:
    """CONFORMANCE R4: replaying recorded retries asks neither the predicate nor the hook, and tries nothing."""
    effects = _files["effects"] = Effects(tmp_path / "effects.txt")
    with Drive(pay_once()) as drive:
        drive.retry("charge", CardDeclined(51))
        drive.fail("charge", CardDeclined(51))
        assert effects.lines() == []
        run, commands = drive.rebuilt()
        assert commands == []
        assert run.outcome == drive.run.outcome
        assert run.outcome is not None
    assert effects.lines() == []


def test_a_recorded_backoff_is_waited_out_not_decided_again(tmp_path: Path) -> None:
    """CONFORMANCE R4: after a crash in a backoff the recorded moment stands."""
    effects = _files["effects"] = Effects(tmp_path / "effects.txt")
    with Drive(pay_once()) as drive:
        drive.retry("charge", CardDeclined(51), after=5_000_000)
        at = drive.step("charge").next_at
        run, _ = drive.rebuilt()
        assert run.pending.next_deadline() == at
        assert run.pending.due_steps(at - 1) == []
        assert [step.attempts for step in run.pending.due_steps(at)] == [1]
    assert effects.lines() == []
