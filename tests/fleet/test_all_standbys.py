"""Several servers in the URL, and none of them takes changes: as while one of them is being promoted."""

from __future__ import annotations

import pytest

from perdure.errors import StoreUnavailable
from perdure.store.postgres.connection import dial
from perdure.store.postgres.url import parse
from support.postgres import server


def test_no_server_that_takes_changes_is_waited_for() -> None:
    """FAULTS C8: `StoreUnavailable`, whose calls are repeated, and not an error that tells people to change
    something: in the middle of a failover all that are left are standbys."""
    url = server().url(server().fresh_schema())
    host = url.split("@")[1].split("/")[0]
    # A role whose sessions are read-only looks to libpq as a standby does.
    two = url.replace(f"@{host}/", f"@{host},127.0.0.1:1/") + "&options=-c%20default_transaction_read_only=on"
    with pytest.raises(StoreUnavailable, match="takes changes now"):
        dial(parse(two))
