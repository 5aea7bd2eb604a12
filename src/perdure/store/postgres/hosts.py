"""In which order the hosts of a URL are tried: the one that worked last first, those that did not answer last.

Without that the first one is tried first each time. A server that is stopped, or behind a network that swallows
everything, costs each connection `connect_timeout`, and a worker makes five of them, one after the other: a failover
took ten seconds longer when the stopped one was named first (tests/chaos/failover/test_patroni.py).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Final

from psycopg.pq import abc

#: What psycopg says of each host that did not answer.
_NO_ANSWER: Final = re.compile(
    r"host: '?([^',]*)'?, port: '?([^',]*)'?, hostaddr: '?([^',]*)'?: connection timeout expired"
)


class Hosts:
    """Of one URL; shared by threads."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._given = {name: parameters[name] for name in ("host", "hostaddr", "port") if name in parameters}
        count = max((len(value.split(",")) for value in self._given.values()), default=1)
        #: Of each parameter that lists them, its values; a single port is for all.
        self._lists = {
            name: value.split(",") if "," in value else [value] * count for name, value in self._given.items()
        }
        self._lock = threading.Lock()
        self._order = list(range(count))

    def ordered(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """These parameters, with the hosts in the order in which they are to be tried."""
        found = dict(parameters)
        if len(self._order) > 1 and all(found.get(name) == value for name, value in self._given.items()):
            with self._lock:
                order = list(self._order)
            found |= {name: ",".join(values[number] for number in order) for name, values in self._lists.items()}
        return found

    def worked(self, connection: abc.PGconn) -> None:
        """This connection was made."""
        if len(self._order) > 1:
            name, port = connection.host.decode(), connection.port.decode()
            self._move(lambda number: (self._name(number), self._port(number)) != (name, port))

    def failed(self, said: str) -> None:
        """No connection was made, as psycopg said."""
        if len(self._order) > 1:
            silent = {(name, port) for host, port, address in _NO_ANSWER.findall(said) for name in (host, address)}
            self._move(lambda number: (self._name(number), self._port(number)) in silent)

    def _name(self, number: int) -> str:
        return (self._lists.get("host") or self._lists["hostaddr"])[number]

    def _port(self, number: int) -> str:
        return (self._lists["port"][number] if "port" in self._lists else "") or "5432"

    def _move(self, later: Callable[[int], bool]) -> None:
        with self._lock:
            self._order.sort(key=later)  # stable: the rest stays in its order
