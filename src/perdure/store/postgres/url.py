"""From `postgresql://user:password@host/database?option=value` to what libpq is given and what perdure keeps.

Text only: nothing is opened, psycopg is not needed, and what libpq reads from the environment (`PGHOST`, `PGPASSWORD`,
`~/.pgpass`, a service file) stays what libpq makes of it. No error and no repr shows a password: errors repeat names of
options and never a value, since a part of a password that was not percent-encoded can end up anywhere in a URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast
from urllib.parse import quote, unquote_to_bytes

from perdure.errors import BadArgument

#: Added unless given. A server that is gone is noticed after some 10 seconds (5 + 3 probes, 2 apart), not after the two
#: hours that TCP waits by itself; what was sent and is not acknowledged is given up after as long.
DEFAULTS: Final[Mapping[str, str]] = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "application_name": "perdure",
}

#: PostgreSQL cuts longer identifiers off, and two long names would be the same schema.
_SCHEMA_BYTES_MAX: Final = 63
_PORT_MAX: Final = 65_535

_OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "schema": (),
    "durability": ("full", "relaxed"),
    "prepare": ("auto", "on", "off"),
    "push": ("auto", "off"),
}
_TLS_VERSIONS: Final = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
#: Options of libpq of which the values are known: found out here, and not at the first connection.
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslnegotiation": ("postgres", "direct"),
    "sslcertmode": ("disable", "allow", "require"),
    "ssl_min_protocol_version": _TLS_VERSIONS,
    "ssl_max_protocol_version": _TLS_VERSIONS,
    "gssencmode": ("disable", "prefer", "require"),
    "channel_binding": ("disable", "prefer", "require"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
    "load_balance_hosts": ("disable", "random"),
    "keepalives": ("0", "1"),
    "sslsni": ("0", "1"),
    "sslcompression": ("0", "1"),
    "gssdelegation": ("0", "1"),
}
_NUMBERS: Final = frozenset(
    {"connect_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"}
)
_SECRETS: Final = frozenset({"password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"})
_TEXTS: Final = frozenset({
    "host", "hostaddr", "port", "user", "dbname", "passfile", "service", "options",
    "application_name", "fallback_application_name", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir",
    "sslkeylogfile", "requirepeer", "require_auth", "krbsrvname", "gsslib", "min_protocol_version",
    "max_protocol_version", "oauth_issuer", "oauth_client_id", "oauth_scope",
})  # fmt: skip
_KNOWN: Final = frozenset({*_OWN, *_CHOICES, *_NUMBERS, *_SECRETS, *_TEXTS})
#: What libpq takes and perdure does not, and why.
_REFUSED: Final[Mapping[str, str]] = {
    "client_encoding": "perdure always talks UTF8 to the server",
    "replication": "a replication connection takes no ordinary statements",
}
#: Everything that an error can say more about than that it is unknown.
_NAMED: Final = frozenset({*_KNOWN, *_REFUSED, "ssl"})
#: Shown to people. What is not here is hidden: a new option of libpq may be a secret.
_SHOWN: Final = ("hostaddr", "service", "sslmode", "target_session_attrs")

_FORM: Final = "Write 'postgresql://user@host/database'."
_ENCODE: Final = (
    "If the user name or the password contains one of @ : / ? # & % [ ], percent-encode it: @ is %40, / is %2F; "
    "urllib.parse.quote(password, safe='') does all of it."
)
_WHERE_LISTED: Final = (
    f"perdure's own ({', '.join(_OWN)}) and libpq's "
    "(https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS)."
)

_HOST_NAME: Final = r"(?:[\w.~-]|%[0-9A-Fa-f]{2})*"
_BRACKETED: Final = r"\[[0-9A-Fa-f:.]+(?:%25[\w.~-]+)?\]"
# libpq takes an empty port too; here `user:` with a password that begins with / or ? would be a host then.
_HOST = re.compile(rf"({_BRACKETED}|{_HOST_NAME})(?::([0-9]+))?")
_NAMED_WITHOUT_PORT = re.compile(rf"(?:{_BRACKETED}|{_HOST_NAME}):.*", re.DOTALL)
_SHOWN_HOST = re.compile(r"[\w.~-]+|[0-9A-Fa-f:.]+(?:%[\w.~-]+)?")
_PARTS = re.compile(r"([^/?]*)(?:/([^?]*))?(?:\?(.*))?", re.DOTALL)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_OPTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_OPTION_INSIDE = re.compile(rf"[?&](?:{'|'.join(sorted(_NAMED))})=")


class Parameters(Mapping[str, str]):
    """Connection parameters of libpq. Read-only, and a repr shows no password."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        visible = {"host", "port", "user", "dbname", *_SHOWN}
        return f"Parameters({', '.join(f'{k}={v!r}' if k in visible else f'{k}=...' for k, v in self.items())})"


@dataclass(frozen=True, slots=True, repr=False)
class Location:
    """Where a store in PostgreSQL is, and how it is used.

    `shown` is for people: a URL with user, hosts, database and a few options, and without any secret. It can be parsed.
    """

    parameters: Mapping[str, str]
    shown: str
    schema: str = "perdure"
    durability: Literal["full", "relaxed"] = "full"
    prepare: Literal["auto", "on", "off"] = "auto"
    push: Literal["auto", "off"] = "auto"

    def __repr__(self) -> str:
        return f"Location({self.shown!r})"


def parse(url: str) -> Location:
    """What a URL says. Raises `BadArgument` with what is wrong and what to do, and without any value of the URL.

    Reads what libpq reads, and also a password with @, / or ? that is not percent-encoded, where that can be read in
    one way only. With several hosts, `target_session_attrs=read-write` is set unless given.

        parse("postgresql://orders:s%40cret@db1,db2:5433/shop?schema=jobs").schema == "jobs"
    """
    scheme, separator, rest = url.strip().partition("://")
    if not separator or scheme.lower() not in ("postgresql", "postgres"):
        raise BadArgument(f"the URL of a PostgreSQL store begins with 'postgresql://'. {_FORM}")
    if "\0" in rest or any("\ud800" <= character <= "\udfff" for character in rest):
        raise BadArgument(f"the PostgreSQL URL contains a character that no text has (NUL, or half of one). {_FORM}")
    reading = _read(rest)
    given = _place(reading)
    for name, value in _options(reading.query):
        if name in given:
            raise BadArgument(f"the option {name!r} is given twice in the PostgreSQL URL. Leave one of them out.")
        given[name] = value
    _check(given)
    own = {name: given.pop(name) for name in _OWN if name in given}
    if any("," in given.get(name, "") for name in ("host", "hostaddr")):
        given.setdefault("target_session_attrs", "read-write")
        given.setdefault("connect_timeout", "2")  # a host that does not answer must not keep us from the next one
    return Location(
        Parameters({**DEFAULTS, **given}),
        _show(given, own),
        schema=own.get("schema", "perdure"),
        durability=cast("Literal['full', 'relaxed']", own.get("durability", "full")),
        prepare=cast("Literal['auto', 'on', 'off']", own.get("prepare", "auto")),
        push=cast("Literal['auto', 'off']", own.get("push", "auto")),
    )


# -- which part is which ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class _Reading:
    """One way to take a URL apart; nothing is decoded yet. `user` is None where no @ was taken for the one before the
    hosts."""

    user: str | None
    password: str | None
    hosts: str
    database: str
    query: str


def _taken_apart(rest: str, at: int) -> _Reading:
    """With the @ at this place as the one before the hosts; -1: there is none."""
    user, colon, password = rest[: max(at, 0)].partition(":")
    found = _PARTS.fullmatch(rest, at + 1)
    assert found is not None  # noqa: S101 - the pattern takes every text
    hosts, database, query = found.groups(default="")
    return _Reading(user if at >= 0 else None, password if colon else None, hosts, database, query)


def _read(rest: str) -> _Reading:
    """The one way to take the URL apart that makes sense.

    An @ in an option's value is taken for that, as RFC 3986 has it. An @ in the path could be of the database's name or
    of a password with a slash: neither is guessed, because the wrong guess sends a part of a password to another host.
    """
    readings = [_taken_apart(rest, at) for at in (-1, *(m.start() for m in re.finditer("@", rest)))]
    possible = [reading for reading in readings if _fault(reading) is None]
    if not possible:
        raise BadArgument(f"in the PostgreSQL URL, {_fault(readings[-1])}. {_ENCODE}")
    first = possible[0]
    userinfo = f"{first.user}:{first.password}"
    if (
        any("@" in reading.database for reading in possible)
        or _OPTION_INSIDE.search(userinfo)
        or (len(possible) > 1 and not {name for name, _ in _pairs(first.query)} <= _NAMED)
    ):
        raise BadArgument(
            "the PostgreSQL URL can be read in more than one way: an @ may be the one before the host, or a part of "
            f"the password, of the database's name or of an option. Write it as %40 except before the host. {_ENCODE}"
        )
    return first


def _fault(reading: _Reading) -> str | None:
    """Why it cannot be meant like this. Repeats nothing of the text, which may be a part of a password."""
    if reading.user is not None and re.search("[/?]", reading.user):
        return "the user name contains a / or ?"
    hosts = reading.hosts.split(",")
    for number, text in enumerate(hosts, 1):
        which = f"host {number}" if len(hosts) > 1 else "the host"
        if not text and len(hosts) > 1:
            return f"{which} is empty (a comma stands between two hosts)"
        if _HOST.fullmatch(text):
            continue
        if "@" in text:
            return f"there is an @ inside {which}"
        if text.count(":") > 1 and "[" not in text:
            return f"{which} has more than one colon: an IPv6 address stands in brackets, as in [::1]:5432"
        if _NAMED_WITHOUT_PORT.fullmatch(text):
            return f"the port of {which} is not a number"
        return f"{which} contains a character that no host name has"
    if any(not name or value is None for name, value in _pairs(reading.query)):
        return "an option after the ? has no name or no value (they are written as option=value, with & between two)"
    return None


def _pairs(query: str) -> list[tuple[str, str | None]]:
    pairs = (text.partition("=") for text in query.split("&")) if query else ()
    return [(name, value if separator else None) for name, separator, value in pairs]


# -- what the parts say ----------------------------------------------------------------------------------


def _decoded(text: str, what: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise BadArgument(
            f"in the PostgreSQL URL, {what} contains a % that is not followed by two hexadecimal digits. "
            "Write %25 for the % itself."
        )
    # Not in `except`: the error of a failed decoding holds the bytes (test_no_error_shows_the_password).
    value = unquote_to_bytes(text).decode(errors="surrogateescape")
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise BadArgument(
            f"in the PostgreSQL URL, what is percent-encoded in {what} is not UTF-8 text without NUL. "
            "Encode its UTF-8 bytes, as urllib.parse.quote does."
        )
    return value


def _place(reading: _Reading) -> dict[str, str]:
    """User, password, hosts, ports and database, as parameters. What is left out is libpq's to decide."""
    given: dict[str, str] = {}
    if reading.user:
        given["user"] = _decoded(reading.user, "the user name")
    if reading.password:
        given["password"] = _decoded(reading.password, "the password")
    found = [_HOST.fullmatch(text) for text in reading.hosts.split(",")]
    hosts = [(match[1], match[2] or "") for match in found if match]
    if names := ",".join(_decoded(name.removeprefix("[").removesuffix("]"), "a host") for name, _ in hosts):
        given["host"] = names
    if any(port for _, port in hosts):
        given["port"] = ",".join(port for _, port in hosts)
    if reading.database:
        given["dbname"] = _decoded(reading.database, "the database's name")
    return given


def _options(query: str) -> Iterator[tuple[str, str]]:
    pairs = [(_decoded(name, "the name of an option"), value or "") for name, value in _pairs(query)]
    # An & or @ that is not percent-encoded makes options of what is a password's second half: not repeated then.
    may_hold_secrets = "@" in query or any(name in _SECRETS for name, _ in pairs)
    for number, (name, value) in enumerate(pairs, 1):
        if name == "ssl" and value == "true":  # as JDBC writes it and libpq takes it
            name, value = "sslmode", "require"
        if name in _REFUSED:
            raise BadArgument(
                f"the option {name!r} cannot be set in the URL of a store: {_REFUSED[name]}. Leave it out."
            )
        if name not in _KNOWN:
            nameless = may_hold_secrets or not _OPTION_NAME.fullmatch(name)
            raise BadArgument(_unknown(f"option {number}" if nameless else repr(name), "" if nameless else name))
        yield name, _decoded(value, f"the value of {name!r}")


def _unknown(called: str, name: str) -> str:
    import difflib  # only for the rare mistake, not for every start

    near = "sslmode" if name.lower() == "ssl" else None
    for close in difflib.get_close_matches(name.lower(), sorted(_KNOWN), n=1):
        near = near or close
    advice = f"Did you mean {near!r}? " if near else "Is it spelled correctly, with & in a value as %26? "
    return f"{called} of the PostgreSQL URL is not a known option. {advice}Known are {_WHERE_LISTED}"


def _check(given: Mapping[str, str]) -> None:
    for name, value in given.items():
        if choices := _OWN.get(name) or _CHOICES.get(name):
            if value not in choices:
                raise BadArgument(f"the value of {name!r} in the PostgreSQL URL is not known. Use {_listed(choices)}.")
        elif name in _NUMBERS and not re.fullmatch("[0-9]{1,9}", value):
            unit = "milliseconds" if name == "tcp_user_timeout" else "probes" if name.endswith("count") else "seconds"
            raise BadArgument(
                f"the value of {name!r} in the PostgreSQL URL is not a whole number of {unit}. "
                f"Write for example {name}=10."
            )
    if "schema" in given:
        _check_schema(given["schema"])
    _check_ports(given)


def _listed(choices: tuple[str, ...]) -> str:
    return f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"


def _check_schema(schema: str) -> None:
    if not schema:
        raise BadArgument("the schema in the PostgreSQL URL is empty. Leave schema= out for 'perdure', or name one.")
    if len(schema.encode()) > _SCHEMA_BYTES_MAX:
        raise BadArgument(
            f"the schema in the PostgreSQL URL is longer than {_SCHEMA_BYTES_MAX} bytes, and PostgreSQL would cut it "
            "off. Choose a shorter name."
        )
    if schema.startswith("pg_") or schema == "information_schema":
        raise BadArgument(
            "the schema in the PostgreSQL URL is one of PostgreSQL's own: 'information_schema' and names that begin "
            "with 'pg_' are reserved. Choose another name, or leave schema= out for 'perdure'."
        )


def _check_ports(given: Mapping[str, str]) -> None:
    ports = given.get("port", "").split(",")
    for number, port in enumerate(ports, 1):
        which = f"port {number}" if len(ports) > 1 else "the port"
        if port and not re.fullmatch("[0-9]+", port):
            raise BadArgument(f"{which} in the PostgreSQL URL is not a number. Give one from 1 to {_PORT_MAX}.")
        # By its length first: int() of thousands of digits fails, with another error.
        significant = port.lstrip("0")
        if port and not (0 < len(significant) <= 5 and int(significant) <= _PORT_MAX):
            raise BadArgument(
                f"{which} in the PostgreSQL URL is out of range. Give one from 1 to {_PORT_MAX}. {_ENCODE}"
            )
    lists = {name: given[name].count(",") + 1 for name in ("host", "hostaddr") if name in given}
    if len(set(lists.values())) > 1:
        raise BadArgument(
            "'host' and 'hostaddr' in the PostgreSQL URL list different numbers of servers. Give as many."
        )
    if len(ports) > 1 and len(ports) not in lists.values():
        raise BadArgument("the PostgreSQL URL has more or fewer ports than hosts. Give one port, or one for each host.")


# -- for people ------------------------------------------------------------------------------------------


def _show(given: Mapping[str, str], own: Mapping[str, str]) -> str:
    """The URL again, from what may be shown only. Sockets are shown as `?host=/tmp`, which can be read."""
    options = {name: given[name] for name in _SHOWN if name in given}
    hosts, ports = given.get("host", "").split(","), given.get("port", "")
    netloc = ""
    if all(_SHOWN_HOST.fullmatch(host) for host in hosts):
        names = [f"[{quote(host, safe=':')}]" if ":" in host else host for host in hosts]
        each = ports.split(",") if "," in ports else [ports] * len(names)
        netloc = ",".join(f"{name}:{port}" if port else name for name, port in zip(names, each, strict=True))
    else:
        options |= {name: given[name] for name in ("host", "port") if name in given}
    user = f"{quote(given['user'], safe='')}@" if "user" in given else ""
    path = f"/{quote(given.get('dbname', ''), safe='')}" if "dbname" in given or not netloc else ""
    query = "&".join(f"{name}={quote(value, safe='/,:')}" for name, value in {**options, **own}.items())
    return f"postgresql://{user}{netloc}{path}{'?' if query else ''}{query}"
