"""Plain turns and new runs of a group as a few statements with arrays of parameters, and what their results mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from perdure.kernel.journal import Row
from perdure.store.model import RunKey
from perdure.store.postgres.queries import SQL
from perdure.store.postgres.values import blobs, encode_all, numbers, texts
from perdure.store.refusals import FIRST_POSITION
from perdure.store.turn import Creation, Turn, concerns_itself_only, ends_at_once, goes_from_step_to_step, only_opens

#: Under which name each statement is prepared.
STATEMENTS: Final[Mapping[bytes, str]] = {
    name.encode(): SQL[name]
    for name in (
        "lane_step", "lane_step_seek", "lane_step_here", "lane_steps", "lane_turns", "lane_ends", "lane_runs",
    )
}  # fmt: skip


class Batch(NamedTuple):
    """A statement for many: its parameters, and what was asked for."""

    name: bytes
    values: Sequence[bytes | None]
    formats: Sequence[int]
    #: The runs whose turns they are; for new runs their ids.
    keys: Sequence[Any]


class _Request(Protocol):
    @property
    def turns(self) -> Sequence[Turn]: ...
    @property
    def creations(self) -> Sequence[Creation]: ...


def opens_only_itself(creation: Creation) -> bool:
    """Whether a new run can be one of many in a statement: on its own, with a first turn that only opens or ends it."""
    new, opening = creation
    return (
        opening is not None
        and new.parent is None
        and not opening.waits
        and (ends_at_once(opening) or (only_opens(opening) and concerns_itself_only(opening)))
        and (opening.epoch, opening.generation, opening.expected_seq) == FIRST_POSITION
    )


class Places:
    """Where the rows of runs with many turns are, as their last turns have told (`lane_step_here`)."""

    def __init__(self) -> None:
        self._places: dict[RunKey, bytes] = {}

    def take(self, key: RunKey) -> bytes | None:
        """The place counts once: the turn that goes there moves the row."""
        return self._places.pop(key, None)

    def note(self, key: RunKey, place: bytes | None) -> None:
        if place is not None:
            if len(self._places) >= _PLACES_MAX:
                self._places.clear()
            self._places[key] = place


#: From which record on a run has had many turns, and of how many such runs the places are kept.
_MANY_TURNS: Final = 500
_PLACES_MAX: Final = 10_000


def batches_of(requests: Sequence[_Request], places: Places) -> list[Batch]:
    """The statements for a group. Raises what a value raises that cannot be a parameter."""
    steps: list[Turn] = []
    others: list[Turn] = []
    ends: list[Turn] = []
    creations: list[Creation] = []
    found: list[Batch] = []
    for request in requests:
        creations += request.creations
        for turn in request.turns:
            if not goes_from_step_to_step(turn):
                (ends if turn.status.terminal else others).append(turn)
            elif turn.expected_seq < _MANY_TURNS:
                steps.append(turn)
            else:
                found.append(_step_of_many(turn, places.take(turn.key)))
    # Runs are locked in the order of the arrays: by key, as everybody does (docs/reference/locks.md,
    # tests/stores/test_postgres_lock_order.py).
    for turns in (steps, others, ends):
        turns.sort(key=_KEY)
    if len(steps) == 1:
        found.append(_step(steps[0]))
    elif steps:
        found.append(_steps(steps))
    if others:
        found.append(_turns("lane_turns", others))
    if ends:
        found.append(_turns("lane_ends", ends))
    if creations:
        found.append(_runs(creations))
    return found


_KEY: Final = attrgetter("key")


def _step(turn: Turn) -> Batch:
    return Batch(b"lane_step", *encode_all(_step_values(turn)), [turn.key])


def _step_values(turn: Turn) -> tuple[Any, ...]:
    seq, at, _, location, data, check = turn.entries[0].row
    return (turn.key, turn.epoch, seq, at, turn.frontier, location, data, check, turn.worker)


def _step_of_many(turn: Turn, place: bytes | None) -> Batch:
    values, formats = encode_all(_step_values(turn))
    if place is None:
        return Batch(b"lane_step_seek", values, formats, [turn.key])
    return Batch(b"lane_step_here", [*values, place], [*formats, 0], [turn.key])


_STEPS_FORMATS: Final = (0, 0, 0, 0, 1, 1, 1, 0, 0, 0)


def _steps(turns: Sequence[Turn]) -> Batch:
    rows = [turn.entries[0].row for turn in turns]
    keys = [turn.key for turn in turns]
    values = (
        numbers(keys),
        numbers([turn.epoch for turn in turns]),
        numbers([row.seq for row in rows]),
        numbers([row.at for row in rows]),
        blobs([turn.frontier for turn in turns]),
        texts([row.location for row in rows]),
        blobs([row.data for row in rows]),
        numbers([row.check for row in rows]),
        turns[0].worker.encode(),
        b"%d" % len(turns),
    )
    return Batch(b"lane_steps", values, _STEPS_FORMATS, keys)


_TURNS_FORMATS: Final = (0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0)


def _turns(name: str, turns: Sequence[Turn]) -> Batch:
    records = [(turn.key, entry.row) for turn in turns for entry in turn.entries]
    keys = [turn.key for turn in turns]
    values = (
        numbers(keys),
        numbers([turn.epoch for turn in turns]),
        numbers([turn.generation for turn in turns]),
        numbers([turn.expected_seq for turn in turns]),
        texts([turn.status for turn in turns]),
        numbers([turn.expected_seq + len(turn.entries) for turn in turns]),
        numbers([turn.at for turn in turns]),
        numbers([turn.wake_at for turn in turns]),
        blobs([turn.frontier for turn in turns]),
        blobs([turn.custom_status for turn in turns]),
        blobs([turn.state for turn in turns]),
        numbers([key for key, _ in records]),
        *_records([row for _, row in records]),
        turns[0].worker.encode(),
        b"%d" % len(turns),
    )
    return Batch(name.encode(), values, _TURNS_FORMATS, keys)


_RUNS_FORMATS: Final = (1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0)


def _runs(creations: Sequence[Creation]) -> Batch:
    new = [one for one, _ in creations]
    first = [opening for _, opening in creations if opening is not None]
    ended = [opening.at if opening.status.terminal else None for opening in first]
    records = [
        (place, row)
        for place, (one, opening) in enumerate(zip(new, first, strict=True), 1)
        for row in (one.started, *[entry.row for entry in opening.entries])
    ]
    ids = [one.id for one in new]
    values = (
        texts(ids),
        texts([one.workflow for one in new]),
        texts([one.version for one in new]),
        texts([opening.status for opening in first]),
        texts([one.owner if at is None else None for one, at in zip(new, ended, strict=True)]),
        numbers([int(one.owner is not None) for one in new]),
        numbers([one.created_at for one in new]),
        numbers([one.created_at if at is None else at for one, at in zip(new, ended, strict=True)]),
        numbers(ended),
        numbers([2 + len(opening.entries) for opening in first]),
        numbers([opening.wake_at for opening in first]),
        blobs([one.input_digest for one in new]),
        blobs([opening.frontier for opening in first]),
        blobs([opening.custom_status for opening in first]),
        blobs([opening.state for opening in first]),
        numbers([place for place, _ in records]),
        *_records([row for _, row in records]),
    )
    return Batch(b"lane_runs", values, _RUNS_FORMATS, ids)


def _records(rows: Sequence[Row]) -> tuple[bytes, ...]:
    """Records as arrays, without the runs that they are of."""
    return (
        numbers([row.seq for row in rows]),
        numbers([row.at for row in rows]),
        texts([row.kind for row in rows]),
        texts([row.location for row in rows]),
        blobs([row.data for row in rows]),
        numbers([row.check for row in rows]),
    )


def answers_of(
    batches: Sequence[Batch], results: Sequence[Sequence[bytes | None]], places: Places
) -> tuple[set[int] | None, dict[str, int]]:
    """The runs whose turns were accepted (None: all), and the keys of the new runs by their ids."""
    accepted: set[int] = set()
    created: dict[str, int] = {}
    everything = True
    for batch, result in zip(batches, results, strict=True):
        if batch.name == b"lane_runs":
            ordinals, keys = (_numbers(column) for column in result)
            created.update((batch.keys[one - 1], key) for one, key in zip(ordinals, keys, strict=True))
        elif result[0] is None:
            accepted.update(batch.keys)
            if len(result) > 1:
                places.note(batch.keys[0], result[1])
        else:
            everything = False
            accepted.update(_numbers(result[0]))
    return (None if everything else accepted), created


def _numbers(array: bytes | None) -> list[int]:
    """What an array in the notation of text holds."""
    return [int(value) for value in array[1:-1].split(b",") if value] if array else []
