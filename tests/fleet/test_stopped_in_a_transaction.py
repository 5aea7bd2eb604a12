"""A process that stands still in the middle of a transaction keeps its locks, but not for long."""

from __future__ import annotations

import signal
import time
from collections import Counter

from fleet.work import GoOn, two_notes
from perdure import Engine
from perdure.limits import POSTGRES_IDLE_SECONDS
from perdure.store.postgres.session import Session
from support.effects import Effects
from support.lives import run_async, until
from support.postgres import server
from support.processes import Process


async def serve_and_stop(url: str) -> None:
    """A worker that stops itself the next time it has locked runs after it was told to, and before it commits."""
    import os

    from fleet.work import serve

    original = Session.commit

    def stop_once(self: Session) -> None:
        if os.environ.get("ARMED") and self._runs:
            del os.environ["ARMED"]
            print("stopped", flush=True)
            signal.raise_signal(signal.SIGSTOP)  # of this thread, which does not get any further
        original(self)

    Session.commit = stop_once  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR1, lambda *_: os.environ.update(ARMED="1"))
    await serve(url)


def test_a_worker_that_is_stopped_in_a_transaction_is_taken_over_in_time(effects: Effects) -> None:
    """FAULTS B18, C3: SIGSTOP with locks on its runs; the server ends the transaction, others take the runs over, and
    what the stopped one wanted to commit is refused."""
    schema = server().fresh_schema()
    url = server().url(schema)

    async def main() -> None:
        async with Engine(url, worker=False) as client:
            with Process("fleet.test_stopped_in_a_transaction:serve_and_stop", url) as first:
                first.expect("ready")
                run = await client.start(two_notes(str(effects.path), "a"), id="a")
                await until(lambda: waits(client))
                first.signal(signal.SIGUSR1)
                sending = time.monotonic()
                await client.send("a", GoOn())  # the turn that takes the event goes through a transaction
                first.expect("stopped")
                held = server().execute(SQL_IN_TRANSACTION, (f"{schema} writer",)).fetchall()
                assert held, "it is stopped in the middle of a transaction"
                with Process("fleet.work:serve", url) as second:
                    second.expect("ready")
                    assert await run.result() == ["a 1", "a 2"]
                    took = time.monotonic() - sending
                    assert took < 1.5 + POSTGRES_IDLE_SECONDS + 5, f"a lease of 1.5 s, and {took:.1f} s until it ended"
                    ended = await client.store.get("a")
                    first.signal(signal.SIGCONT)

                    async def is_back() -> bool:
                        return len(await client.store.workers()) == 2

                    await until(is_back)
                    assert await client.store.get("a") == ended
        assert effects.counts() == Counter({"a 1": 1, "a 2": 1})

    async def waits(client: Engine) -> bool:
        return (await client.status("a")).status == "waiting"

    run_async(main(), patience=60)


SQL_IN_TRANSACTION = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND state = 'idle in transaction'"
