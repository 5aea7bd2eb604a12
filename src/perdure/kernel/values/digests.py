"""Hashes of bytes. `hashlib` is loaded when the first one is made: it brings OpenSSL, which importing perdure can do
without. (An engine needs it anyway, so that no workflow is the first.)"""

from __future__ import annotations

from typing import Any

_blake2b: Any = None


def blake(data: bytes, *, size: int = 64, key: bytes = b"") -> bytes:
    global _blake2b
    if _blake2b is None:
        from hashlib import blake2b as _blake2b
    digest: bytes = _blake2b(data, digest_size=size, key=key).digest()
    return digest


def input_digest(workflow: str, data: bytes) -> bytes:
    """Tells whether two starts of one id mean the same run, even if that has continued as another workflow since."""
    return blake(workflow.encode() + b"\0" + data, size=16)
