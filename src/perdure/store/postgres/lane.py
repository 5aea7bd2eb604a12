"""The commit lane: plain turns and new runs of all that queued, as one round trip on the event loop.

Most of what a busy worker commits is plain: turns that concern their own run only, and runs with their first turn.
These go through one connection in libpq's pipeline mode: a statement for each kind, one synchronisation, one
transaction. Nothing blocks and no thread is woken; while the server works, the next group gathers. No lock outlives a
round trip, so a loop that user code blocks stops nobody (docs/decisions/0140-threads-for-transactions.md).

Whatever does not go smoothly (a turn that does not fit, an id that is taken, a fault, a connection that broke) goes the
general way, through the writer's thread, where repeated and refused turns are recognised. A call is never cancelled:
what became of it is found by repeating it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from psycopg import pq
from psycopg.pq import abc

from perdure.errors import StoreUnavailable
from perdure.limits import POSTGRES_GROUP_TURNS_MAX
from perdure.store.postgres import batches
from perdure.store.postgres.batches import Batch
from perdure.store.postgres.connection import Connection, fault_of, local_settings_of, log, one_line
from perdure.store.postgres.faults import Fault
from perdure.store.postgres.queries import SQL
from perdure.store.turn import NO_EFFECTS, Created, Creation, Turn


class Request(NamedTuple):
    """A call of the store: turns or creations, never both."""

    turns: Sequence[Turn]
    creations: Sequence[Creation]
    future: asyncio.Future[Any]

    @property
    def worker(self) -> str | None:
        if self.turns:
            return self.turns[0].worker
        return None


_LOCAL_SETTINGS: Final = SQL["local_settings"].encode()

#: Carries out a request the general way; its future has the answers.
General = Callable[[Sequence[Turn], Sequence[Creation]], asyncio.Future[Any]]


def prepare(connection: Connection) -> None:
    """Make a connection ready for a lane; on a thread, since it waits for the server."""
    for name, statement in batches.STATEMENTS.items():
        connection.prepare(name, statement)


class Lane:
    """See the module docstring. Used from one event loop, with a connection that is prepared."""

    def __init__(
        self,
        connection: Connection,
        general: General,
        committed: Callable[[Sequence[Request]], None],
        broke: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._settings = [value.encode() for value in local_settings_of(connection.location)]
        self._general = general
        #: Called once when the connection is of no use any more.
        self._tell_broke = broke
        #: Called after each group that was committed here.
        self._committed = committed
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Request] = []
        self._group: list[Request] = []
        self._batches: list[Batch] = []
        self._results: list[Any] = []
        self._places = batches.Places()
        self._fault: Fault | None = None
        self._is_writing = False
        self._socket = -1
        self.is_open = False
        #: Set when nothing is under way: what closing waits for.
        self.idle = asyncio.Event()
        self.idle.set()

    def open(self) -> None:
        """Listen to the socket. Raises `NotImplementedError` on loops that cannot."""
        self._socket = self._connection.pq.socket
        self._loop.add_reader(self._socket, self._readable)
        self._connection.pq.nonblocking = 1
        self._connection.pq.enter_pipeline_mode()
        self.is_open = True

    def close(self) -> None:
        """Stop listening and close the connection. What is under way goes the general way."""
        self._tell_broke = _nothing
        if self.is_open:
            self._broke()
        self._connection.close()

    def refuse_all(self, error: StoreUnavailable) -> None:
        """The server has another past: what was asked for before must not be carried out on it, by no way. The
        connection is broken, or about to be; whether the group that was under way is stored is found by repeating it.
        """
        refused, self._waiting, self._group = [*self._group, *self._waiting], [], []
        if self.is_open:
            self._broke()
        for request in refused:
            _fail(request.future, error)

    # -- asking ------------------------------------------------------------------------------------------

    def submit(self, turns: Sequence[Turn], creations: Sequence[Creation]) -> asyncio.Future[Any]:
        """Commit; the answers are those of `Store.commit` or `create_all`."""
        request = Request(turns, creations, self._loop.create_future())
        if not self.is_open:
            self._general_way(request)
            return request.future
        self._waiting.append(request)
        if not self._group:
            self._send()
        return request.future

    def _send(self) -> None:
        """Begin with the next group."""
        self._group = self._next_group()
        if not self._group:
            self.idle.set()
            return
        self.idle.clear()
        try:
            self._batches = batches.batches_of(self._group, self._places)
            connection = self._connection.pq
            if self._connection.is_pooled:
                self._send_unprepared(connection)
            else:
                for batch in self._batches:
                    connection.send_query_prepared(batch.name, batch.values, batch.formats, pq.Format.TEXT)
            connection.pipeline_sync()
            self._connection.busy_since = time.monotonic()
            self._flush()
        except Exception as error:  # of libpq: the connection broke; of a value: the general way says which
            if self._connection.is_broken or not isinstance(error, (ValueError, TypeError)):
                log.info("the commit lane broke: %s", one_line(error))
            self._broke()

    def _send_unprepared(self, connection: abc.PGconn) -> None:
        """Behind a pooler, where what was prepared and set may be another session's. All of it is one transaction."""
        connection.send_query_params(_LOCAL_SETTINGS, self._settings, None, None, pq.Format.TEXT)
        for batch in self._batches:
            connection.send_query_params(
                batches.STATEMENTS[batch.name].encode(), batch.values, None, batch.formats, pq.Format.TEXT
            )

    def _next_group(self) -> list[Request]:
        group: list[Request] = []
        count, keys, workers = 0, set[int](), set[str]()
        while self._waiting and count < POSTGRES_GROUP_TURNS_MAX:
            request = self._waiting[0]
            own = {turn.key for turn in request.turns}
            worker = request.worker
            if group and (keys & own or (worker is not None and workers and worker not in workers)):
                break
            keys |= own
            if worker is not None:
                workers.add(worker)
            count += len(request.turns) + len(request.creations)
            group.append(self._waiting.pop(0))
        return group

    # -- the connection ----------------------------------------------------------------------------------

    def _flush(self) -> None:
        if self._connection.pq.flush():
            if not self._is_writing:
                self._is_writing = True
                self._loop.add_writer(self._socket, self._writable)
        elif self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket)

    def _writable(self) -> None:
        try:
            self._flush()
        except Exception as error:
            log.info("the commit lane broke: %s", one_line(error))
            self._broke()

    def _readable(self) -> None:
        connection = self._connection.pq
        try:
            connection.consume_input()
            if self._is_writing:
                self._flush()
            while not connection.is_busy():
                result = connection.get_result()
                if result is not None and self._took(result):
                    self._finish()
                    return
                if result is None and not self._group:
                    return  # a notice, or the end of the connection
        except Exception as error:
            log.info("the commit lane broke: %s", one_line(error))
            self._broke()
            return
        if self._connection.is_broken:
            self._broke()

    def _took(self, result: abc.PGresult) -> bool:
        """Note one result. True: it was the last."""
        match result.status:
            case pq.ExecStatus.PIPELINE_SYNC:
                return True
            case pq.ExecStatus.TUPLES_OK:
                self._results.append([result.get_value(0, column) for column in range(result.nfields)])
            case pq.ExecStatus.PIPELINE_ABORTED:
                pass
            case _:
                self._fault = self._fault or fault_of(result, self._connection.pq)
        return False

    def _broke(self) -> None:
        """The connection is of no use any more. What became of the group is found by repeating it."""
        if self.is_open:
            self.is_open = False
            # By the number it had, before anything else gets it: libpq may have closed the socket already, and the loop
            # would take the next connection of that number for this one, and never look at it.
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._connection.close()
        lost, self._waiting = [*self._group, *self._waiting], []
        self._group, self._results, self._fault = [], [], None
        self._connection.busy_since = None
        for request in lost:
            self._general_way(request)
        self.idle.set()
        tell, self._tell_broke = self._tell_broke, _nothing
        tell()

    # -- answers -----------------------------------------------------------------------------------------

    def _finish(self) -> None:
        group, results, fault = self._group, self._results, self._fault
        self._results, self._fault = [], None
        self._connection.busy_since = None
        if self._connection.is_pooled:
            results = results[1:]  # of the settings
        if fault is not None and fault.needs_new_connection:
            log.info("the commit lane needs another connection: %s", fault)
            self._broke()
            return
        if fault is not None:
            log.debug("a group goes the general way: %s", fault)
            self._group = []
            for request in group:
                self._general_way(request)
        elif self._connection.not_replicated:
            self._connection.not_replicated = False
            self._group = []
            for request in group:
                _fail(request.future, StoreUnavailable(
                    "the server committed, but its standby did not confirm it: the change may be lost with the primary."
                ))  # fmt: skip
        else:
            accepted, created = batches.answers_of(self._batches, results, self._places)
            # First the next group: while it is under way the loop deals with these answers.
            self._send()
            for request in group:
                self._answer(request, accepted, created)
            self._committed(group)
            return
        self._send()

    def _answer(self, request: Request, accepted: set[int] | None, created: dict[str, int]) -> None:
        future = request.future
        if request.turns:
            if accepted is None:
                _resolve(future, [NO_EFFECTS] * len(request.turns))
                return
            left = [turn for turn in request.turns if turn.key not in accepted]
            if not left:
                _resolve(future, [NO_EFFECTS] * len(request.turns))
                return
            self._general(left, ()).add_done_callback(
                lambda done: _merge(future, done, [turn.key in accepted for turn in request.turns])
            )
            return
        answers = [
            Created(key=created[new.id], epoch=int(new.owner is not None), committed=NO_EFFECTS)
            for new, _ in request.creations if new.id in created
        ]  # fmt: skip
        if len(answers) == len(request.creations):
            _resolve(future, answers)
            return
        others = [one for one in request.creations if one[0].id not in created]
        flags = [new.id in created for new, _ in request.creations]
        self._general((), others).add_done_callback(lambda done: _merge(future, done, flags, answers))

    def _general_way(self, request: Request) -> None:
        future = request.future
        self._general(request.turns, request.creations).add_done_callback(lambda done: _pass_on(future, done))


def _nothing() -> None:
    """There is nothing to tell any more."""


def _resolve(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _pass_on(future: asyncio.Future[Any], done: asyncio.Future[Any]) -> None:
    if done.cancelled():
        future.cancel()
    elif (error := done.exception()) is not None:
        _fail(future, error)
    else:
        _resolve(future, done.result())


def _merge(
    future: asyncio.Future[Any], done: asyncio.Future[Any], here: Sequence[bool], answers: Sequence[Any] = ()
) -> None:
    """The answers of both ways, in order. `here`: which were answered in the lane."""
    if done.cancelled() or done.exception() is not None:
        _pass_on(future, done)
        return
    own, general = iter(answers), iter(done.result())
    _resolve(future, [next(own, NO_EFFECTS) if is_here else next(general) for is_here in here])
