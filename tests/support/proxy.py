"""A TCP proxy before PostgreSQL that knows enough of the protocol to do harm at the worst moments.

It follows both directions of each connection: which message ends a transaction (`COMMIT`, or a Sync outside one), and
in which state the server says it is. So a connection can be cut just before a commit reaches the server, or just after
it was carried out and before the answer is delivered. The other harm needs no understanding: silence, trickle, delay,
refusal.

It runs on a thread of its own with an event loop of its own; every method may be called from any thread. Connections
must be neither encrypted nor compressed (`sslmode=disable`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

#: Of the first message, which has no letter: version 3, encryption is asked for, cancel what another connection does.
_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_READ_BYTES = 65_536

T = TypeVar("T")


class Messages:
    """Takes a stream of one direction apart. Gives back whole messages; the beginning of a next one is kept."""

    def __init__(self, *, has_startup: bool) -> None:
        self._rest = b""
        self._has_startup = has_startup

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Letter and bytes (with the letter and the length) of each message; the first ones of a client have none."""
        self._rest += data
        while True:
            head = 0 if self._has_startup else 1
            if len(self._rest) < head + 4:
                return
            (length,) = struct.unpack_from("!I", self._rest, head)
            if len(self._rest) < head + length:
                return
            whole, self._rest = self._rest[: head + length], self._rest[head + length :]
            letter = whole[:head]
            if self._has_startup:
                (code,) = struct.unpack_from("!I", whole, 4)
                self._has_startup = code in (_SSL, _GSS)
            yield letter, whole


class Link:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        #: What the server said last: idle, in a transaction, in a failed one. None: it has not said anything yet.
        self.state: bytes | None = None
        #: A commit is under way whose answer nobody is to hear.
        self.drops_answer = False
        #: Nothing passes any more, and nobody is told.
        self.is_mute = False

    def is_commit(self, letter: bytes, whole: bytes) -> bool:
        """Whether this message makes something durable: the end of a transaction, or a statement on its own."""
        if letter == b"Q":
            return whole[5:11].upper() == b"COMMIT"
        return letter == b"S" and self.state == b"I"

    def cut(self) -> None:
        """Both ends see a reset, as if the machine between them had lost its memory."""
        for writer in (self.client, self.server):
            sock: socket.socket | None = writer.get_extra_info("socket")
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """Listens on a port of its own, and passes on to `target`, which may change.

    with Proxy(("127.0.0.1", 5432)) as proxy:
        proxy.cut_after_commits(1)  # the next commit is carried out, and nobody hears of it
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.port = 0
        #: What was done, by name.
        self.done: Counter[str] = Counter()
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        #: So many commits are still to be cut before they reach the server, and after it carried them out.
        self._cut_before = self._cut_after = 0
        self._is_refusing = False
        self._delay = 0.0
        self._slice = 0
        self._loop = asyncio.new_event_loop()
        self._audible = asyncio.Event()
        self._audible.set()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-proxy", daemon=True)

    # -- harm ----------------------------------------------------------------------------------------------------

    def cut_before_commits(self, count: int) -> None:
        """The next commits do not reach the server: their connections are cut instead."""
        self._call(lambda: setattr(self, "_cut_before", self._cut_before + count))

    def cut_after_commits(self, count: int) -> None:
        """The next commits are carried out; their connections are cut before the answer is delivered."""
        self._call(lambda: setattr(self, "_cut_after", self._cut_after + count))

    def cut_all(self) -> int:
        """Cut every connection, whatever it does just now; how many there were."""
        return self._call(self._cut_all)

    def mute_all(self) -> int:
        """Every present connection stays open for ever and nothing passes it any more: half open, as after the loss of
        a router. New ones work."""
        return self._call(self._mute_all)

    def silence(self) -> None:
        """Nothing passes, and nobody is told, until `heal`: as if every packet were dropped. New connections are
        accepted and hear nothing. What was sent meanwhile is delivered afterwards."""
        self._call(self._audible.clear)

    def refuse(self) -> None:
        """New connections are reset at once; present ones go on."""
        self._is_refusing = True

    def be_slow(self, delay: float = 0.0, slice_bytes: int = 0) -> None:
        """Each answer of the server comes so much later, and in slices of so many bytes (0: whole)."""
        self._delay, self._slice = delay, slice_bytes

    def heal(self) -> None:
        """No more harm. What was broken stays broken."""
        self._call(self._heal)

    @property
    def links(self) -> int:
        return len(self._links)

    def _heal(self) -> None:
        self._cut_before = self._cut_after = self._slice = 0
        self._is_refusing, self._delay = False, 0.0
        self._audible.set()

    def _cut_all(self) -> int:
        links = list(self._links)
        for link in links:
            link.cut()
        return len(links)

    def _mute_all(self) -> int:
        for link in self._links:
            link.is_mute = True
        return len(self._links)

    # -- the thread ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._cut_all)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def _run(self) -> None:
        loop = self._loop
        server = loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        loop.run_forever()
        server.close()
        loop.run_until_complete(self._end())
        loop.close()

    async def _end(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, from_client: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self._is_refusing:
            Link(client, client).cut()
            return
        await self._audible.wait()
        try:
            from_server, server = await asyncio.open_connection(*self.target)
        except OSError:
            client.transport.abort()
            return
        link = Link(client, server)
        self._links.add(link)
        try:
            await asyncio.gather(self._requests(link, from_client), self._answers(link, from_server))
        except OSError:
            pass
        finally:
            self._links.discard(link)
            client.transport.abort()
            server.transport.abort()

    async def _requests(self, link: Link, reader: asyncio.StreamReader) -> None:
        messages = Messages(has_startup=True)
        while data := await reader.read(_READ_BYTES):
            for letter, whole in messages.feed(data):
                if letter and link.is_commit(letter, whole) and self._harms(link):
                    return
                await self._pass(link, link.server, whole)
        await self._pass(link, link.server, b"")
        link.server.write_eof()

    def _harms(self, link: Link) -> bool:
        """Something is about to be committed. True: the connection was cut."""
        if self._cut_before:
            self._cut_before -= 1
            self.done["cut before a commit"] += 1
            link.cut()
            return True
        if self._cut_after and not link.drops_answer:
            self._cut_after -= 1
            link.drops_answer = True
        return False

    async def _answers(self, link: Link, reader: asyncio.StreamReader) -> None:
        messages = Messages(has_startup=False)
        while data := await reader.read(_READ_BYTES):
            out = bytearray()
            for letter, whole in messages.feed(data):
                out += whole
                if letter == b"Z":
                    link.state = whole[5:6]
            self._look(data)
            if link.drops_answer:
                if link.state == b"I" and out[-6:-1] == b"Z\0\0\0\5":
                    self.done["cut after a commit"] += 1
                    link.cut()
                    return
                continue
            if self._delay:
                await asyncio.sleep(self._delay)
            size = self._slice or len(out) or 1
            for start in range(0, len(out), size):
                await self._pass(link, link.client, bytes(out[start : start + size]))
                if self._slice:
                    await asyncio.sleep(0)
        await self._pass(link, link.client, b"")
        link.client.write_eof()

    def _look(self, data: bytes) -> None:
        """For those who want to see what the server says. On the proxy's thread."""

    async def _pass(self, link: Link, writer: asyncio.StreamWriter, data: bytes) -> None:
        while not self._audible.is_set() or link.is_mute:
            if link.is_mute:
                await asyncio.Event().wait()  # until the proxy ends, or an end of the connection is noticed elsewhere
            await self._audible.wait()
        writer.write(data)
        await writer.drain()
