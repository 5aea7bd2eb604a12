"""`check`: would the open runs still replay against the code of this process? Reads the store, writes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from perdure import limits
from perdure.admin.replay import Verdict, VerdictKind, in_callback, replay_loaded
from perdure.authoring.registry import Registry
from perdure.kernel.verbs.checks import check_text
from perdure.store.model import RunFilter, RunKey, Status
from perdure.store.protocol import Store

OPEN = frozenset(status for status in Status if not status.terminal)


class Checked(msgspec.Struct, frozen=True):
    """One open run, and what came of replaying it."""

    id: str
    workflow: str
    version: str
    status: Status
    verdict: VerdictKind
    text: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def is_fine(self) -> bool:
        return self.verdict == "fine"


async def check(store: Store, registry: Registry, workflow: str | None = None) -> AsyncIterator[Checked]:
    """Replay every open run, newest first; parked and paused ones too. A run that moves meanwhile is seen as it was
    at one moment."""
    before: RunKey | None = None
    workflow = check_text(workflow, "workflow")
    where = RunFilter(statuses=OPEN, workflow=workflow)
    while rows := await store.list_runs(where, limits.CHECK_BATCH, before):
        before = rows[-1].key
        loaded = await store.load([row.key for row in rows])
        verdicts: list[Verdict] = await in_callback(lambda page=loaded: [replay_loaded(registry, one) for one in page])  # type: ignore[misc]
        for one, verdict in zip(loaded, verdicts, strict=True):
            row = one.run
            if not row.status.terminal:
                yield Checked(
                    row.id, row.workflow, row.version, row.status, verdict.kind, verdict.text, verdict.warnings
                )
