"""What the code of a run was told once and is told again by every replay: patches that it chose, values that it read.

Neither is waited for: each is written with the next commit, beside what the code was doing, and looked up by location.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw

from perdure.kernel.commands import Write
from perdure.kernel.journal import Body, PatchChosen, Record, Recorded
from perdure.kernel.sites import caller_site

if TYPE_CHECKING:
    from perdure.kernel.run import Run

NO_PATCHES: frozenset[str] = frozenset()


def read(run: Run, records: Sequence[Record], kinds: set[type[Body]]) -> None:
    """Before a replay: what the journal says was chosen and read."""
    if PatchChosen in kinds:
        run.patches = frozenset(record.location for record in records if isinstance(record.body, PatchChosen))
    if Recorded in kinds:
        run.notes = {record.location: record.body.value for record in records if isinstance(record.body, Recorded)}


def patched(run: Run, patch_id: str) -> bool:
    """Whether the code from here on may take the new way. Recorded, so that every replay answers the same."""
    if run.is_ending():
        return False
    location = run.locate(f"patched({patch_id})")
    if location in run.patches:
        return True
    if run.replaying:
        return False
    run.patches |= {location}
    run.commands.append(Write(location, PatchChosen(caller_site(2))))
    return True


def forget_patches(run: Run, path: str) -> None:
    """An iteration is over, and with it what was chosen in it."""
    if run.patches:
        run.patches = frozenset(one for one in run.patches if not one.startswith(f"{path}/")) or NO_PATCHES


def noted(run: Run, name: str, read_value: Callable[[], bytes]) -> bytes:
    """A value of this process, read once: written with the next commit, and given again by every replay.

    For what has no effect outside: if the process dies before that commit nobody has seen the value, and another
    one is as good. So code that reads one more, or one less, than the journal knows is no divergence.
    """
    if run.is_ending():
        return read_value()
    location = run.locate(name)
    known = run.notes.pop(location, None)
    if known is not None:
        return bytes(known)
    data = read_value()
    run.commands.append(Write(location, Recorded(Raw(data), caller_site(2))))
    return data


def removed(run: Run, name: str, kind: str) -> None:
    """An operation that stood here is gone: its place stays taken, its records are passed over."""
    if not run.is_ending():
        run.changes = run.changes.without(run.locate(name), kind, caller_site(2))
