"""A link between a primary and its standby that delivers everything later than it was sent, or nothing any more.

A process of its own, so that a busy test does not make it later than it says.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys

from support.processes import TESTS


class LaggingLink:
    """Listens on a port of its own, passes on to a port; what comes from there is late by `seconds`.

    with LaggingLink(primary.port, 0.5) as link: standby.follow(link.port, ...)
    """

    def __init__(self, target: int, seconds: float) -> None:
        self._command = [sys.executable, "-u", "-m", "chaos.failover.lagging", str(target), str(seconds)]
        self.port = 0

    def cut(self) -> None:
        """From now on nothing arrives, also not what is on its way."""
        self._tell("cut")

    def repair(self) -> None:
        """New connections work again."""
        self._tell("repair")

    def lag(self, seconds: float) -> None:
        """Another delay, for what is sent from now on."""
        self._tell(f"lag {seconds}")

    def _tell(self, command: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def __enter__(self) -> LaggingLink:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=TESTS
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            process.kill()


# -- in the process --------------------------------------------------------------------------------------------


class _Link:
    def __init__(self, target: int, seconds: float) -> None:
        self._target, self._seconds = target, seconds
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False

    async def serve(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        while command := (await asyncio.to_thread(sys.stdin.readline)).split():
            self._obey(command)
            print("done", flush=True)

    def _obey(self, command: list[str]) -> None:
        match command:
            case ["cut"]:
                self._is_cut = True
                for writer in list(self._writers):
                    writer.transport.abort()
            case ["repair"]:
                self._is_cut = False
            case ["lag", seconds]:
                self._seconds = float(seconds)
            case _:
                raise ValueError(command)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await self._pass_both(reader, writer)
        writer.transport.abort()

    async def _pass_both(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            return
        from_target, to_target = await asyncio.open_connection("127.0.0.1", self._target)
        both = {writer, to_target}
        self._writers |= both
        try:
            await asyncio.gather(self._pass(reader, to_target, lags=False), self._pass(from_target, writer, lags=True))
        finally:
            self._writers -= both
            to_target.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, lags: bool) -> None:
        loop, last = asyncio.get_running_loop(), 0.0
        while data := await reader.read(65_536):
            if not lags or self._seconds <= 0:
                self._write(writer, data)
                continue
            last = max(last, loop.time() + self._seconds)  # in the order in which it came
            loop.call_at(last, self._write, writer, data)
        raise ConnectionError  # one end is gone: so is the other

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if not self._is_cut and not writer.transport.is_closing():
            writer.write(data)


if __name__ == "__main__":
    asyncio.run(_Link(int(sys.argv[1]), float(sys.argv[2])).serve())
