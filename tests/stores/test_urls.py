"""What a user writes becomes a store, or an error that shows the ways to write it and never a password."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.errors import BadArgument, PerdureError
from perdure.store import open_store
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore


@pytest.mark.parametrize("url", [":memory:", "memory://", "sqlite:///:memory:", "sqlite:///"])
def test_memory(url: str) -> None:
    assert isinstance(open_store(url), MemoryStore)


def test_paths_and_urls_name_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS F16: relative, absolute, `Path`, spaces as such and as %20."""
    monkeypatch.chdir(tmp_path)
    expected = os.path.realpath(tmp_path / "my orders.db")
    for url in (
        "my orders.db",
        Path("my orders.db"),
        tmp_path / "my orders.db",
        "sqlite:///my orders.db",
        "sqlite:///my%20orders.db",
        f"sqlite:///{tmp_path}/my%20orders.db?durability=relaxed",
    ):
        store = open_store(url)
        assert isinstance(store, SQLiteStore)
        assert store.path == expected
        assert store.durability == ("relaxed" if "relaxed" in str(url) else "full")


@pytest.mark.parametrize(
    ("url", "error", "text"),
    [
        ("", BadArgument, "empty"),
        (" \t", BadArgument, "empty"),
        ("a\0b", BadArgument, "NUL"),
        ("mysql://u:hunter2@h/db", BadArgument, "'mysql' is not a kind of store"),
        ("sqlite://u:hunter2@h/x.db", BadArgument, "three slashes"),
        ("sqlite:///x.db?durabilty=full", BadArgument, "durabilty"),
        ("sqlite:///x.db?durability=none", BadArgument, "'full' or 'relaxed'"),
    ],
)
def test_errors_name_the_fix_and_no_password(url: str, error: type[PerdureError], text: str) -> None:
    """FAULTS F16, S10: nothing of a URL's user information shows in an error."""
    with pytest.raises(error) as caught:
        open_store(url)
    assert text in str(caught.value)
    assert "hunter2" not in str(caught.value)
