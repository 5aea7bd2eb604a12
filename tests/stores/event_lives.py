"""Random lives of events: the same calls on the memory store, which is the reference, and on another one."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from perdure.kernel.definitions import EventPolicy
from perdure.store.model import Published, Reopen, Spread, Status
from perdure.store.protocol import Store
from perdure.store.turn import Committed, DeadItem, Entry
from stores.store_kit import create, failed_row, finishing, published, resumed_row, row_of, turn

POLICIES = [
    EventPolicy(delivery, consume, expires, undelivered)
    for delivery in ("after_create", "after_wait", "all", "first")
    for consume in (True, False)
    for expires in (None, 40)
    for undelivered in ("dead_letter", "broadcast", "discard")
]


def plain(answer: Any) -> Any:
    """What two answers must share: lists and tuples are one, and `ready_at` is nobody's business."""
    if isinstance(answer, Committed | Published | Spread):
        return type(answer).__name__, list(answer.deliveries or ())
    return list(answer) if isinstance(answer, list | tuple) else answer


class Pair:
    """The same calls on both stores; a random but repeatable life."""

    def __init__(self, stores: list[Store], seed: int) -> None:
        self.stores = stores
        self.random = random.Random(seed)
        self.runs: dict[str, tuple[int, int]] = {}  # id -> key, next seq
        self.parked: set[str] = set()
        self.at = 100
        #: How often each run was given each shared publication.
        self.given: Counter[tuple[str, int]] = Counter()
        self.seen: set[int] = set()

    async def both(self, name: str, *args: Any) -> Any:
        answers = []
        for store in self.stores:
            try:
                answers.append(await getattr(store, name)(*args))
            except Exception as error:
                answers.append((type(error), str(error)))
        assert plain(answers[0]) == plain(answers[1]), name
        return answers[0]

    async def step(self) -> None:
        self.at += self.random.randrange(3) * 10
        choices = [self.create, self.wait, self.wait, self.publish, self.publish, self.read, self.read, self.hand_back,
                   self.dead_letter, self.end, self.park, self.pause, self.fail, self.spread, self.tidy,
                   self.letter, self.send]  # fmt: skip
        await self.random.choice(choices)()
        await self.compare()

    def pick(self) -> str | None:
        open_runs = [run_id for run_id in self.runs if run_id not in self.parked]
        return self.random.choice(open_runs) if open_runs else None

    async def create(self) -> None:
        run_id = f"r{self.random.randrange(1_000_000)}"
        self.runs[run_id] = (await create(self.stores[0], run_id), 2)
        await create(self.stores[1], run_id)

    async def turn(self, run_id: str, **changes: Any) -> None:
        key, seq = self.runs[run_id]
        row = await row_of(self.stores[0], run_id)
        fields = {"status": Status.WAITING, "at": self.at, "epoch": row.epoch, "pending_max": 6} | changes
        results = [(await store.commit([turn(key, seq, **fields)]))[0] for store in self.stores]
        assert plain(results[0]) == plain(results[1])
        assert isinstance(results[0], Committed)

    async def wait(self) -> None:
        run_id = self.pick()
        if run_id is not None:
            kinds = self.random.sample(["a", "b"], self.random.randrange(3))
            await self.turn(run_id, waits={kind: self.random.randrange(1, 4) for kind in kinds})

    async def publish(self) -> None:
        key = self.random.choice([None, None, str(self.random.randrange(5))])
        policy = self.random.choice(POLICIES)
        await self.both("publish", published(self.random.choice("ab"), policy, self.at, dedup=key), 6)

    async def send(self) -> None:
        run_id = self.pick()
        if run_id is not None:
            await self.both("append", run_id, published("a", self.random.choice(POLICIES), self.at), 6)

    async def items(self, run_id: str) -> list[Any]:
        return list(await self.stores[0].inbox(self.runs[run_id][0], 1000))

    async def read(self) -> None:
        """Takes one event, and waits for something (so that the receive came or went)."""
        run_id = self.pick()
        if run_id is not None and (items := await self.items(run_id)):
            await self.turn(run_id, consumed=[self.random.choice(items).id], waits={"a": self.random.randrange(2)} if
                            self.random.random() < 0.5 else {})  # fmt: skip

    async def hand_back(self) -> None:
        run_id = self.pick()
        if run_id is not None:
            held = [item.id for item in await self.items(run_id) if item.publication and item.policy.single]
            await self.turn(run_id, returned=held, waits=self.random.choice([None, {"a": 2}]))

    async def dead_letter(self) -> None:
        run_id = self.pick()
        if run_id is not None and (items := await self.items(run_id)):
            await self.turn(run_id, dead=[DeadItem(self.random.choice(items).id, "no good")])

    async def end(self) -> None:
        run_id = self.pick()
        if run_id is None or len(self.runs) < 3:
            return
        key, seq = self.runs[run_id]
        if self.random.random() < 0.5:
            await self.both("terminate", run_id, "enough", self.at)
        else:
            row = await row_of(self.stores[0], run_id)
            ends = finishing(key, seq, at=self.at, epoch=row.epoch, waits={}, pending_max=6)
            results = [(await store.commit([ends]))[0] for store in self.stores]
            assert plain(results[0]) == plain(results[1])
        assert await self.items(run_id) == []
        del self.runs[run_id]

    async def park(self) -> None:
        if self.parked:
            run_id = self.parked.pop()
            assert await self.both("resume", run_id, self.at)
            assert await self.both("claim", "w1", self.at, 10)
        elif (run_id := self.pick()) is not None:
            row = await row_of(self.stores[0], run_id)
            assert await self.both("park", row.key, row.epoch, "broken", self.at)
            self.parked.add(run_id)

    async def pause(self) -> None:
        run_id = self.pick()
        if run_id is not None:
            assert await self.both("pause", run_id, "by ann", self.at) is not None
            await self.compare()
            self.at += self.random.randrange(2) * 10
            if self.random.random() < 0.5:
                await self.both("publish", published("a", self.random.choice(POLICIES), self.at), 6)
            assert await self.both("unpause", run_id, self.at)
            assert await self.both("claim", "w1", self.at, 10)

    async def fail(self) -> None:
        """And go on, with what was unread."""
        run_id = self.pick()
        if run_id is None:
            return
        key, seq = self.runs[run_id]
        row = await row_of(self.stores[0], run_id)
        unread = [item.data for item in await self.items(run_id) if not item.publication]
        await self.turn(run_id, entries=[Entry(failed_row(seq))], status=Status.FAILED, waits={})
        assert await self.items(run_id) == []
        again = Reopen(key=key, epoch=row.epoch, record=resumed_row(seq + 1, seq), frontier=b"f")
        assert await self.both("reopen", again)
        assert await self.both("claim", "w1", self.at, 10)
        self.runs[run_id] = (key, seq + 2)
        assert len(await self.items(run_id)) <= len(unread)

    async def spread(self) -> None:
        await self.both("spread", self.at, self.random.randrange(1, 3), 6)

    async def tidy(self) -> None:
        await self.both("tidy_events", self.at, self.at - self.random.choice([30, 1000]), 1000)

    async def letter(self) -> None:
        for letter in (await self.stores[0].dead_letters(None, 1000))[:1]:
            if self.random.random() < 0.3:
                await self.both("remove_dead_letters", [letter.id])
            else:
                run_id = self.random.choice([None, self.pick()])
                await self.both("replay_dead_letter", letter.id, run_id, self.at, 6)

    async def compare(self) -> None:
        holders: Counter[int] = Counter()
        for run_id, (key, _) in self.runs.items():
            found = await self.both("inbox", key, 1000)
            for item in found:
                single = item.publication and item.policy.single
                holders[item.publication] += bool(single)
                if item.publication and not single and item.id not in self.seen:
                    self.given[run_id, item.publication] += 1
                self.seen.add(item.id)
        assert not holders or max(holders.values()) <= 1, "two runs hold one event"
        assert not self.given or max(self.given.values()) <= 1, "a run got an event twice"
        logged = await self.both("publications", None, 1000)
        await self.both("dead_letters", None, 1000)
        assert dict(await self.stores[0].expired_events()) == dict(await self.stores[1].expired_events())
        assert {one.id for one in logged if one.holder} == {number for number, held in holders.items() if held}
