"""What is around a SQLite file: its mode, its -wal, the disk and its kind, and the processes that have locks on it."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any, Final

from perdure import limits
from perdure.store.health import Checks, Finding, attention, fine, problem, size_text

#: Where Linux tells what is mounted, and who has locks. Elsewhere these checks say that they do not know.
MOUNTS: Final = Path("/proc/self/mountinfo")
LOCKS: Final = Path("/proc/locks")

#: Kinds of file systems on other machines: their locks do not keep two machines apart, and a -shm cannot be shared.
_NETWORK: Final = frozenset({
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.ceph", "fuse.cephfs", "fuse.gcsfuse", "fuse.glusterfs",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb2", "smb3",
    "smbfs", "vboxsf", "drvfs",
})  # fmt: skip
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def look(checks: Checks, path: str) -> None:
    checks.run("mode", lambda: _mode(path))
    checks.run("wal-size", lambda: _wal(path))
    checks.run("file-system", lambda: _file_system(path))
    checks.run("free-space", lambda: _free_space(path))
    checks.run("locks", lambda: _locks(path))


def _mode(path: str) -> Finding:
    if os.name != "posix":
        return fine("mode", "not known on this system")
    mode = stat.S_IMODE(os.stat(path).st_mode)
    figures: dict[str, Any] = {"mode": f"{mode:04o}"}
    if not mode & (stat.S_IRWXG | stat.S_IRWXO):
        return fine("mode", f"{mode:04o}: only its owner can read it", **figures)
    return attention("mode", f"{mode:04o}: other users of this machine can read it", f"chmod 600 {path}", **figures)


def _wal(path: str) -> Finding:
    try:
        size = os.path.getsize(path + "-wal")
    except FileNotFoundError:
        return fine("wal-size", "no -wal beside the file: all is in it", bytes=0)
    text = f"{size_text(size)} in the -wal"
    if size < limits.DOCTOR_SQLITE_WAL_BYTES:
        return fine("wal-size", text, bytes=size)
    text += ": readers look through it, and somebody keeps it from being copied into the file"
    advice = "Look for a process that reads for a long time (locks): a backup, a shell, a report."
    return attention("wal-size", text, advice, bytes=size)


def kind_of_file_system(path: str) -> str | None:
    """As the system calls it; None: not known. The deepest mount counts, and of two in one place the later."""
    real, found, depth = os.path.realpath(path), None, -1
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        if len(fields := before.split(" ")) < 5 or not after:
            continue
        place = fields[4].encode("utf-8", "surrogateescape").decode("unicode_escape").rstrip("/")
        if len(place) >= depth and (real == place or real.startswith(f"{place}/")):
            found, depth = after.split(" ")[0], len(place)
    return found


def _file_system(path: str) -> Finding:
    kind = kind_of_file_system(path)
    if kind is None:
        return fine("file-system", "its kind is not known on this system")
    if kind in _NETWORK:
        text = f"{kind}: a network file system, on which two machines can damage the file"
        advice = "Move the file to a local disk, or the runs to PostgreSQL if several machines need them."
        return problem("file-system", text, advice, kind=kind)
    if kind in _IN_MEMORY:
        text = f"{kind}: in memory, and gone when the machine restarts"
        return attention("file-system", text, "Move the file to a disk, unless that is what you want.", kind=kind)
    return fine("file-system", kind, kind=kind)


def _free_space(path: str) -> Finding:
    usage = shutil.disk_usage(os.path.dirname(os.path.realpath(path)))
    text = f"{size_text(usage.free)} of {size_text(usage.total)} are free"
    figures: dict[str, Any] = {"free_bytes": usage.free, "total_bytes": usage.total}
    if usage.free >= limits.DOCTOR_FREE_BYTES_ATTENTION:
        return fine("free-space", text, **figures)
    make = problem if usage.free < limits.DOCTOR_FREE_BYTES_PROBLEM else attention
    return make("free-space", text, "Make room, or remove old runs: `perdure prune --older-than 30d`.", **figures)


def lock_holders(path: str) -> list[int] | None:
    """The processes with a lock on the file or its -shm, besides this one; None: not known."""
    try:
        lines = LOCKS.read_text().splitlines()
        files = {_identity(name) for name in (path, f"{path}-shm") if os.path.exists(name)}
    except OSError:
        return None
    holders: set[int] = set()
    for line in lines:
        fields = line.replace("->", " ").split()  # `->`: it waits for the lock, and will have it
        if len(fields) >= 6 and fields[5] in files and (pid := int(fields[4])) > 0:
            holders.add(pid)
    return sorted(holders - {os.getpid()})


def _identity(path: str) -> str:
    """As in /proc/locks."""
    found = os.stat(path)
    return f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"


def _locks(path: str) -> Finding:
    holders = lock_holders(path)
    if holders is None:
        return fine("locks", "who has the file open is not known on this system")
    if not holders:
        return fine("locks", "no other process has it open", pids=[])
    names = ", ".join(f"{pid}{_command(pid)}" for pid in holders[:10])
    return fine(
        "locks", f"open in {len(holders)} other process{'es' if len(holders) > 1 else ''}: {names}", pids=holders
    )


def _command(pid: int) -> str:
    try:
        return f" ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except OSError:
        return ""
