"""A disk below SQLite that a test can break: it keeps apart what programs see and what would survive a power cut.

A VFS passes everything on to the system's own, so locks, shared memory and what other connections see are real. It
writes a log of what was written, cut short, deleted and synced, into which a test puts marks of its own ("this was
acknowledged", "this step began"). From any prefix of the log follows what a disk may hold if the power fails there:
what was synced for certain, and of the rest nothing, all, a part, or half a write. Nothing is really synced, which
makes it quick; nothing needs to be, because the power does not really fail.

`break_at` lets the n-th read, write, sync or truncation fail, as the system would: with an I/O error, with a full disk,
or having written only half.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import apsw

#: A disk writes at least this much as a whole, and promises nothing about more.
SECTOR_BYTES = 512

_names = itertools.count(1)


class Entry(NamedTuple):
    """One line of the log: what was done to which file, or a mark of the test's own."""

    kind: str
    file: str = ""
    offset: int = 0
    data: bytes = b""
    mark: Any = None


class Break(NamedTuple):
    """What is to fail: the `number`-th operation of that kind, and `times - 1` more of it."""

    kind: str
    number: int
    #: "io" or "full"; "short": half of it is written before the error; "forgotten": what should have been synced will
    #: not be by the next sync either.
    how: str
    times: int = 1


class Disk:
    """The log, the plan of what fails, and the name under which SQLite finds them."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []
        self.vfs = f"breakable-{next(_names)}"
        self.break_at: Break | None = None
        #: Called at each operation, before it happens.
        self.watch: Callable[[str, str], None] | None = None
        self._lock = threading.Lock()
        self._registered = _VFS(self)

    def unregister(self) -> None:
        self._registered.unregister()

    def mark(self, mark: Any) -> None:
        """Something outside could have seen by now."""
        with self._lock:
            self.log.append(Entry("mark", mark=mark))

    def note(self, entry: Entry) -> None:
        with self._lock:
            self.log.append(entry)

    def fails(self, kind: str, file: str) -> str | None:
        """How this operation fails, if it does."""
        if self.watch is not None:
            self.watch(kind, file)
        with self._lock:
            self.counts[kind] += 1
            plan = self.break_at
            if plan is None or plan.kind != kind or not 0 <= self.counts[kind] - plan.number < plan.times:
                return None
            self.broken.append(f"{kind} {self.counts[kind]} of {file}")
            return plan.how


_CODES = {
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
}


def _error(kind: str, how: str) -> apsw.Error:
    if how == "full":
        return apsw.FullError("no space left on the breakable disk")
    error = apsw.IOError(f"the breakable disk failed to {kind}")
    error.extendedresult = _CODES[kind]
    return error


class _VFS(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__(disk.vfs, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._disk.note(Entry("delete", Path(filename).name, int(syncdir)))


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        # A file without a name is temporary: nobody looks for it after a crash.
        self._name = "" if name is None else Path(name.filename() if hasattr(name, "filename") else name).name
        # SQLite syncs the directory with the first sync of a journal or WAL that it may have created.
        self._directory_too = bool(
            flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & (apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL)
        )
        super().__init__("", name, flags)
        if self._name:
            disk.note(Entry("open", self._name))

    def xRead(self, amount: int, offset: int) -> bytes:
        if (how := self._disk.fails("read", self._name)) is not None:
            raise _error("read", how)
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        how = self._disk.fails("write", self._name)
        if how is not None:
            if how == "short":
                self._write(bytes(data)[: len(data) // 2], offset)
            raise _error("write", how)
        self._write(bytes(data), offset)

    def _write(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        if self._name:
            self._disk.note(Entry("write", self._name, offset, data))

    def xTruncate(self, size: int) -> None:
        if (how := self._disk.fails("truncate", self._name)) is not None:
            raise _error("truncate", how)
        super().xTruncate(size)
        if self._name:
            self._disk.note(Entry("truncate", self._name, size))

    def xSync(self, flags: int) -> None:
        if (how := self._disk.fails("sync", self._name)) is not None:
            if how == "forgotten":
                # As Linux does it: the pages count as clean from now on, so that a later sync that succeeds says
                # nothing about them. They are on the disk only if they are written again.
                self._disk.note(Entry("forget", self._name))
            raise _error("sync", how)
        if self._name:
            self._disk.note(Entry("sync", self._name))
        if self._directory_too:
            self._directory_too = False
            self._disk.note(Entry("sync directory"))


@dataclass
class _Content:
    """One file: what is on the disk for certain (None: no such file), and what is not yet."""

    durable: bytes | None = None
    pending: list[Entry] = field(default_factory=list)
    visible: bytes | None = None

    def settle_names(self) -> None:
        """The directory was synced: whether there is such a file is certain from now on, what is in it is not."""
        for position, entry in reversed(list(enumerate(self.pending))):
            if entry.kind == "delete":
                self.durable, self.pending = None, self.pending[position + 1 :]
                break
        if self.durable is None and self.pending:
            self.durable = b""


class State:
    """What the disk holds after a prefix of the log."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        # The database itself is created before SQLite gets to see it; it is empty then.
        self._files: dict[str, _Content] = {name: _Content(b"", visible=b"") for name in names}

    def apply(self, entry: Entry) -> None:
        if entry.kind == "mark":
            return
        if entry.kind == "sync directory":
            for one in self._files.values():
                one.settle_names()
            return
        content = self._files.setdefault(entry.file, _Content())
        if entry.kind == "sync":
            for one in content.pending:
                content.durable = _changed(content.durable, one)
            content.pending.clear()
        elif entry.kind == "forget":
            content.pending = [one for one in content.pending if one.kind not in ("write", "truncate")]
        else:
            content.pending.append(entry)
            content.visible = _changed(content.visible, entry)
            if entry.kind == "delete" and entry.offset:  # together with its directory
                content.settle_names()

    def seen(self) -> dict[str, bytes]:
        """What a program finds if the process is killed and the power stays."""
        return {name: one.visible for name, one in self._files.items() if one.visible is not None}

    def lost(self) -> dict[str, bytes]:
        """What is found after a power cut that took everything which was not synced."""
        return {name: one.durable for name, one in self._files.items() if one.durable is not None}

    def after_cuts(self, rng: random.Random, chances: int) -> Iterator[tuple[str, dict[str, bytes]]]:
        """What may be found after a power cut, of all that may be found: nothing unsynced, all of it, torn parts."""
        yield "lost", self.lost()
        if not any(one.pending for one in self._files.values()):
            return
        yield "kept", {name: data for name, one in self._files.items() if (data := _all(one)) is not None}
        for number in range(chances):
            found = {name: _some(one, rng) for name, one in self._files.items()}
            yield f"torn {number}", {name: data for name, data in found.items() if data is not None}


def _all(content: _Content) -> bytes | None:
    data = content.durable
    for entry in content.pending:
        data = _changed(data, entry)
    return data


def _some(content: _Content, rng: random.Random) -> bytes | None:
    """Any of the unsynced changes, in any order a disk may have chosen, and any sectors of each."""
    data = content.durable
    for entry in content.pending:
        if rng.random() < 0.5:
            continue
        if entry.kind != "write" or data is None or rng.random() < 0.5:
            data = _changed(data, entry)
            continue
        for start in range(0, len(entry.data), SECTOR_BYTES):
            if rng.random() < 0.5:
                part = entry.data[start : start + SECTOR_BYTES]
                data = _changed(data, entry._replace(offset=entry.offset + start, data=part))
    return data


def _changed(data: bytes | None, entry: Entry) -> bytes | None:
    if entry.kind == "delete":
        return None
    data = data or b""
    if entry.kind == "truncate":
        return data[: entry.offset]
    if entry.kind == "write":
        end = entry.offset + len(entry.data)
        return data[: entry.offset].ljust(entry.offset, b"\0") + entry.data + data[end:]
    return data  # opened, and there from now on


def put(files: Mapping[str, bytes], directory: Path) -> None:
    """Lay out what was found."""
    directory.mkdir(parents=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
        (directory / name).chmod(0o600)
