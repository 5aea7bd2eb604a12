"""One child of a supervisor: a `perdure worker` in a process of its own, with threads that read what it says."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import IO, Final, NamedTuple, TypeAlias

import msgspec

from perdure.cli.relay import Relay
from perdure.cli.supervised import VARIABLE

#: A longer line is passed on in pieces: a step may print anything.
_LINE_BYTES_MAX: Final = 65_536
#: How long the last words of a child that ended are waited for. A process that it left behind may keep its output open.
_LAST_WORDS_SECONDS: Final = 1.0


class Told(NamedTuple):
    """A child said something to its supervisor: "ready", or "refused" (what it was given cannot work)."""

    child: Child
    kind: str


class Ended(NamedTuple):
    child: Child
    code: int


class Signalled(NamedTuple):
    """The supervisor was sent a signal."""

    number: int


Happening: TypeAlias = Told | Ended | Signalled


class Child:
    """Starts at once. What happens to it is put into `happenings`."""

    def __init__(
        self, process: int, arguments: Sequence[str], environment: Mapping[str, str], relay: Relay,
        happenings: SimpleQueue[Happening],
    ) -> None:  # fmt: skip
        #: Its place among the children: the process that replaces it has the same one.
        self.process = process
        self.began = time.monotonic()
        self.is_ready = False
        #: It said itself that it cannot work with what it was given.
        self.refused = False
        #: When it has to be gone, once it was told to leave.
        self.leaves_by: float | None = None
        self._relay = relay
        self._happenings = happenings
        self._token = f"\x1e{secrets.token_hex(8)}"
        self._process = _started(arguments, {**environment, VARIABLE: self._token})
        streams = {"stdout": self._process.stdout, "stderr": self._process.stderr}
        self._readers = [
            threading.Thread(target=self._read, args=(name, stream), daemon=True) for name, stream in streams.items()
        ]
        for reader in self._readers:
            reader.start()
        threading.Thread(target=self._wait, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def lived_seconds(self) -> float:
        return time.monotonic() - self.began

    def leave(self, seconds: float) -> None:
        """Tell it to leave in order, once; it has so many seconds."""
        if self.leaves_by is None:
            self.leaves_by = time.monotonic() + seconds
            self._process.terminate()

    def kill(self) -> None:
        """End it now. What is not stored yet is recovered by other workers."""
        self._process.kill()

    def _read(self, name: str, stream: IO[bytes]) -> None:
        while part := stream.readline(_LINE_BYTES_MAX):
            line = part.decode(errors="backslashreplace").rstrip("\r\n")
            # Code of the user's may have printed something before it, without an end of its own.
            said, token, message = line.partition(self._token)
            if said or not token:
                self._relay.pass_on(self.process, name, said)
            if token:
                self._happenings.put(Told(self, msgspec.json.decode(message, type=dict[str, str])["kind"]))

    def _wait(self) -> None:
        code = self._process.wait()
        for reader in self._readers:
            reader.join(_LAST_WORDS_SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._happenings.put(Ended(self, code))


def _started(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # this Python, and what the user gave to it
        [sys.executable, "-m", "perdure", "worker", *arguments],
        stdin=subprocess.PIPE,  # the lifeline: see `supervised`
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # What steps print shall be passed on at once, not when the buffer is full.
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        # Ctrl-C on a terminal goes to the supervisor alone, which tells its children once.
        start_new_session=True,
    )
