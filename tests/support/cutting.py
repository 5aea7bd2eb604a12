"""A TCP proxy before PostgreSQL that cuts connections at the two moments that matter: a commit has not reached the
server yet, or was carried out there and the answer is on its way.

It follows the protocol as far as it must: which message of the client ends a transaction (`COMMIT`, or the end of a
group that is a transaction of its own), and what the server says about its state. Neither encryption nor compression.
"""

from __future__ import annotations

import asyncio
import mmap
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from support.postgres import _end_with_parent

_READ_BYTES: Final = 65_536
BEFORE, AFTER = "before the commit", "after the commit"
_COUNTS: Final = struct.Struct("QQ")


class Messages:
    """Takes one direction of a connection apart, and gives back whole messages with their letter."""

    def __init__(self, *, has_startup: bool) -> None:
        self._rest = b""
        self._has_startup = has_startup

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._rest += data
        while True:
            head = 0 if self._has_startup else 1  # the first message of a client has no letter
            if len(self._rest) < head + 4:
                return
            (length,) = struct.unpack_from("!I", self._rest, head)
            if len(self._rest) < head + length:
                return
            whole, self._rest = self._rest[: head + length], self._rest[head + length :]
            self._has_startup = False
            yield whole[:head], whole


class _Link:
    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        #: What the server said last: b"I" when it is in no transaction.
        self.state = b""
        self.drops_answer = False
        #: Whether something was carried out since the last group ended.
        self.executes = False

    def ends_transaction(self, letter: bytes, whole: bytes) -> bool:
        if letter == b"Q":
            return whole[5:11].upper() == b"COMMIT"
        if letter == b"E":
            self.executes = True
        if letter != b"S":
            return False
        executed, self.executes = self.executes, False  # otherwise a statement was only prepared
        return executed and self.state == b"I"

    def cut(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


class CuttingProxy:
    """Each commit is cut with this probability, before or after, until there were `cuts_max`. A process of its own: a
    busy test must not make connections slow.

    with CuttingProxy(port, 0.2, seed=7, cuts_max=300) as proxy: ... proxy.port ... proxy.cuts
    """

    def __init__(self, target: int, probability: float, *, seed: int, cuts_max: int) -> None:
        self._cuts_max = cuts_max
        self._arguments = [str(target), str(probability), str(seed), str(cuts_max)]
        self.port = 0

    def __enter__(self) -> CuttingProxy:
        self._file = tempfile.TemporaryFile()
        self._file.write(bytes(_COUNTS.size))
        self._file.flush()
        self._shared = mmap.mmap(self._file.fileno(), _COUNTS.size)
        number = str(self._file.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", "support.cutting", *self._arguments, number],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1], pass_fds=[self._file.fileno()],
            preexec_fn=_end_with_parent(),
        )  # fmt: skip
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            process.kill()
        self._last = self.cuts
        self._shared.close()
        self._file.close()

    @property
    def cuts(self) -> dict[str, int]:
        """How many there were of each kind."""
        if self._shared.closed:
            return self._last
        return dict(zip((BEFORE, AFTER), _COUNTS.unpack_from(self._shared), strict=True))

    @property
    def is_done(self) -> bool:
        return sum(self.cuts.values()) >= self._cuts_max


# -- in the process --------------------------------------------------------------------------------------------


class _Proxy:
    def __init__(self, target: int, probability: float, seed: int, cuts_max: int, counts: mmap.mmap) -> None:
        self._target, self._probability, self._cuts_max = target, probability, cuts_max
        self._rng = random.Random(seed)
        self._counts = counts
        self._cuts = {BEFORE: 0, AFTER: 0}

    async def serve(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    @property
    def _is_done(self) -> bool:
        return sum(self._cuts.values()) >= self._cuts_max

    async def _serve(self, from_client: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            from_server, server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            client.transport.abort()
            return
        link = _Link(client, server)
        try:
            directions = (
                self._pass(from_client, server, Messages(has_startup=True), lambda *one: self._asked(link, *one)),
                self._pass(from_server, client, Messages(has_startup=False), lambda *one: self._answered(link, *one)),
            )
            await asyncio.gather(*directions)
        except OSError:
            pass
        finally:
            link.cut()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        messages: Messages,
        passes: Callable[[bytes, bytes], bool],
    ) -> None:
        while data := await reader.read(_READ_BYTES):
            for letter, whole in messages.feed(data):
                if passes(letter, whole):
                    writer.write(whole)
            await writer.drain()
        raise ConnectionError  # one end is gone: so is the other

    def _asked(self, link: _Link, letter: bytes, whole: bytes) -> bool:
        """Whether a message of the client passes."""
        if link.ends_transaction(letter, whole) and not self._is_done and self._rng.random() < self._probability:
            if self._rng.random() < 0.5:
                self._cut(link, BEFORE)
                return False
            link.drops_answer = True
        return True

    def _answered(self, link: _Link, letter: bytes, whole: bytes) -> bool:
        """Whether a message of the server passes."""
        if letter == b"Z":
            link.state = whole[5:6]
            if link.drops_answer and link.state == b"I":
                self._cut(link, AFTER)
        return not link.drops_answer

    def _cut(self, link: _Link, moment: str) -> None:
        self._cuts[moment] += 1
        _COUNTS.pack_into(self._counts, 0, self._cuts[BEFORE], self._cuts[AFTER])
        link.cut()


def _main(target: str, probability: str, seed: str, cuts_max: str, file: str) -> None:
    counts = mmap.mmap(int(file), _COUNTS.size)
    asyncio.run(_Proxy(int(target), float(probability), int(seed), int(cuts_max), counts).serve())


if __name__ == "__main__":
    _main(*sys.argv[1:])
