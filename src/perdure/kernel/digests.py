"""Hashes of bytes. `hashlib` is loaded when the first one is made: it brings OpenSSL, which importing perdure can do
without. (An engine needs it anyway, so that no workflow is the first.)"""

from __future__ import annotations


def blake(data: bytes, *, size: int = 64, key: bytes = b"") -> bytes:
    from hashlib import blake2b

    return blake2b(data, digest_size=size, key=key).digest()
