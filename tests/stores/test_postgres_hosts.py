"""In which order the hosts of a PostgreSQL URL are tried."""

from __future__ import annotations

from typing import Any, cast

from perdure.store.postgres.hosts import Hosts
from perdure.store.postgres.url import parse


class Made:
    """A connection, as far as it is looked at."""

    def __init__(self, host: str, port: str) -> None:
        self.host, self.port = host.encode(), port.encode()


def order(hosts: Hosts, url: str) -> tuple[str, str]:
    found = hosts.ordered(parse(url).parameters)
    return found["host"], found.get("port", "")


URL = "postgresql://u@one:1,two:2,three:3/d"


def test_the_one_that_worked_is_tried_first() -> None:
    """So that the next connections do not wait for a server that is gone."""
    hosts = Hosts(parse(URL).parameters)
    assert order(hosts, URL) == ("one,two,three", "1,2,3")
    hosts.worked(cast(Any, Made("two", "2")))
    assert order(hosts, URL) == ("two,one,three", "2,1,3")


def test_one_that_does_not_answer_is_tried_last() -> None:
    """One that refuses is no reason: that costs no time."""
    hosts = Hosts(parse(URL).parameters)
    hosts.failed(
        "connection failed: Multiple connection attempts failed. All failures were:\n"
        "- host: 'one', port: '1', hostaddr: '10.0.0.1': connection timeout expired\n"
        "- host: 'two', port: '2', hostaddr: '10.0.0.2': connection failed: Connection refused"
    )
    assert order(hosts, URL) == ("two,three,one", "2,3,1")


def test_one_port_for_all_hosts() -> None:
    """The ports stay with their hosts, also where one was given or none."""
    for url, ports in (("postgresql://u@one,two/d?port=7", "7,7"), ("postgresql://u@one,two/d", "")):
        hosts = Hosts(parse(url).parameters)
        hosts.worked(cast(Any, Made("two", "7" if ports else "5432")))
        assert order(hosts, url) == ("two,one", ports)


def test_other_hosts_are_left_alone() -> None:
    """A connection to one of them by name is not led elsewhere."""
    hosts = Hosts(parse(URL).parameters)
    hosts.worked(cast(Any, Made("two", "2")))
    assert order(hosts, "postgresql://u@one:1/d") == ("one", "1")
