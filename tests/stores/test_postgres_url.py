"""URLs of stores in PostgreSQL: what libpq is given, what is refused with which advice, and that no secret shows.

Text only: no server is asked.
"""

from __future__ import annotations

import copy
import importlib.util
import pickle
import traceback
from urllib.parse import quote

import pytest

from perdure.errors import BadArgument, StoreUnusable
from perdure.store import open_store
from perdure.store.postgres.url import DEFAULTS, Location, parse

ODD = "a!b@c$d()e*_,/:;=?@ff[]22"


def given(url: str) -> dict[str, str]:
    """What the URL itself says, without the defaults."""
    return {name: value for name, value in parse(url).parameters.items() if DEFAULTS.get(name) != value}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://", {}),
        ("postgres://", {}),
        ("POSTGRESQL://h", {"host": "h"}),
        ("PostGres://h/", {"host": "h"}),
        (" postgresql://h/db\n", {"host": "h", "dbname": "db"}),
        ("postgresql:///db", {"dbname": "db"}),
        ("postgresql://h:5433", {"host": "h", "port": "5433"}),
        ("postgresql://:5433/db", {"port": "5433", "dbname": "db"}),
        ("postgresql://me@h/db", {"user": "me", "host": "h", "dbname": "db"}),
        ("postgresql://me@/db", {"user": "me", "dbname": "db"}),
        ("postgresql://me:pw@h/db", {"user": "me", "password": "pw", "host": "h", "dbname": "db"}),
        ("postgresql://me:@h", {"user": "me", "host": "h"}),
        ("postgresql://:pw@h", {"password": "pw", "host": "h"}),
        ("postgresql://@h", {"host": "h"}),
        ("postgresql://m%40e:p%25w@h/d%2Fb", {"user": "m@e", "password": "p%w", "host": "h", "dbname": "d/b"}),
        ("postgresql://m%C3%BCller@h/b%C3%BCcher", {"user": "müller", "host": "h", "dbname": "bücher"}),
        ("postgresql://müller:ß@h/bücher", {"user": "müller", "password": "ß", "host": "h", "dbname": "bücher"}),
        ("postgresql://my_host.local-1/a/b#c", {"host": "my_host.local-1", "dbname": "a/b#c"}),
        ("postgresql://[::1]/db", {"host": "::1", "dbname": "db"}),
        ("postgresql://me@[2001:db8::1]:5433", {"user": "me", "host": "2001:db8::1", "port": "5433"}),
        ("postgresql://[fe80::1%25eth0]", {"host": "fe80::1%eth0"}),
        ("postgresql:///db?host=/tmp", {"host": "/tmp", "dbname": "db"}),
        ("postgresql://me@/db?host=%2Ftmp&port=5433", {"user": "me", "host": "/tmp", "port": "5433", "dbname": "db"}),
        ("postgresql://%2Fvar%2Frun/db", {"host": "/var/run", "dbname": "db"}),
        ("postgresql://%40abstract:5433", {"host": "@abstract", "port": "5433"}),
        ("postgresql://h?user=me@corp&password=a+b", {"host": "h", "user": "me@corp", "password": "a+b"}),
        ("postgresql://h:5432/db?user=me@corp", {"host": "h", "port": "5432", "dbname": "db", "user": "me@corp"}),
        ("postgresql://h?dbname=db&connect_timeout=9", {"host": "h", "dbname": "db", "connect_timeout": "9"}),
        ("postgresql://h?application_name=my%20shop", {"host": "h", "application_name": "my shop"}),
        ("postgresql://me:pw@h?options=a@b", {"user": "me", "password": "pw", "host": "h", "options": "a@b"}),
        ("postgresql://h?options=-c%20jit%3Doff", {"host": "h", "options": "-c jit=off"}),
        ("postgresql://h?%73slmode=require", {"host": "h", "sslmode": "require"}),
        ("postgresql://h?ssl=true", {"host": "h", "sslmode": "require"}),
        ("postgresql://?sslmode=verify-full&sslrootcert=/ca", {"sslmode": "verify-full", "sslrootcert": "/ca"}),
        ("postgresql://?sslcert=/c&sslkey=/k&sslpassword=x", {"sslcert": "/c", "sslkey": "/k", "sslpassword": "x"}),
        ("postgresql://?gssencmode=disable&sslsni=0", {"gssencmode": "disable", "sslsni": "0"}),
        ("postgresql://?channel_binding=require", {"channel_binding": "require"}),
        ("postgresql://h?hostaddr=10.0.0.1&passfile=/p", {"host": "h", "hostaddr": "10.0.0.1", "passfile": "/p"}),
        ("postgresql://?service=shop", {"service": "shop"}),
    ],
)  # fmt: skip
def test_parameters(url: str, expected: dict[str, str]) -> None:
    """What is not in the URL is left to libpq: no database, user or host is made up. FAULTS F16."""
    assert given(url) == expected


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgresql://a,b", "a,b", None),
        ("postgresql://a:1,b:2/db", "a,b", "1,2"),
        ("postgresql://me:p,w@a:1,b/db", "a,b", "1,"),
        ("postgresql://a,[::1]:2", "a,::1", ",2"),
        ("postgresql://?host=a,b&port=5432", "a,b", "5432"),
        ("postgresql://a,b?port=5432", "a,b", "5432"),
    ],
)
def test_several_hosts_are_tried_for_the_one_that_takes_changes(url: str, host: str, port: str | None) -> None:
    """A standby among the hosts is passed over, unless the URL says otherwise."""
    parameters = parse(url).parameters
    assert parameters["host"] == host
    assert parameters.get("port") == port
    assert parameters["target_session_attrs"] == "read-write"
    other = url + ("&" if "?" in url else "?") + "target_session_attrs=any"
    assert parse(other).parameters["target_session_attrs"] == "any"


def test_one_host_has_no_target() -> None:
    assert "target_session_attrs" not in parse("postgresql://a:1/db").parameters
    assert parse("postgresql://?hostaddr=1.1.1.1,1.1.1.2").parameters["target_session_attrs"] == "read-write"


def test_defaults_are_added_unless_given() -> None:
    """A server that is gone is noticed in seconds."""
    assert dict(parse("postgresql://").parameters) == {
        "connect_timeout": "5",
        "keepalives": "1",
        "keepalives_idle": "5",
        "keepalives_interval": "2",
        "keepalives_count": "3",
        "tcp_user_timeout": "10000",
        "application_name": "perdure",
    }
    other = {"keepalives": "0"} | {name: "77" for name in DEFAULTS if name != "keepalives"}
    assert dict(parse("postgresql://?" + "&".join(f"{k}={v}" for k, v in other.items())).parameters) == other


# -- what perdure keeps for itself -----------------------------------------------------------------------


def test_own_options() -> None:
    """They are not given to libpq, which would refuse them."""
    plain = parse("postgresql://h")
    assert (plain.schema, plain.durability, plain.prepare, plain.push) == ("perdure", "full", "auto", "auto")
    other = parse("postgresql://h?schema=jobs&durability=relaxed&prepare=off&push=off")
    assert (other.schema, other.durability, other.prepare, other.push) == ("jobs", "relaxed", "off", "off")
    assert parse("postgresql://h?prepare=on").prepare == "on"
    assert dict(other.parameters) == dict(plain.parameters)


@pytest.mark.parametrize(
    "schema", ["a", "My Jobs", 'qu"ote', "ü" * 31, "a" * 63, "pgjobs", "PG_x", "a.b", "x;--", "a@b"]
)
def test_schemas(schema: str) -> None:
    """Whatever PostgreSQL takes as a quoted name."""
    assert parse(f"postgresql://h?schema={quote(schema, safe='')}").schema == schema


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("", "is empty"),
        ("a" * 64, "63 bytes"),
        ("%C3%BC" * 32, "63 bytes"),
        ("a%00b", "NUL"),
        ("pg_jobs", "begin with 'pg_'"),
        ("pg_", "begin with 'pg_'"),
        ("information_schema", "reserved"),
    ],
)
def test_refused_schemas(schema: str, reason: str) -> None:
    with pytest.raises(BadArgument, match=reason):
        parse(f"postgresql://h?schema={schema}")


# -- odd passwords ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "password", [ODD, "100%", "a&b=c", "@", "/", "#?", " ", "é", "%41", "a:b", "[::1]", "x@h:1/db?a=b"]
)
def test_every_password_can_be_percent_encoded(password: str) -> None:
    encoded = quote(password, safe="")
    expected = {"user": "me", "password": password, "host": "h", "port": "5433", "dbname": "db"}
    assert given(f"postgresql://me:{encoded}@h:5433/db") == expected
    assert given(f"postgresql://me@h:5433/db?password={encoded}") == expected


@pytest.mark.parametrize(
    "password",
    [ODD, "a@b", "a/b", "a?b", "a#b", "@", "@@", "a b", "a:b", "a&b", "[x]", "p@ss/x?y", "/?#@", "/x", "?x=y"],
)
def test_raw_passwords_that_can_be_read_in_one_way(password: str) -> None:
    """The last @ before the host ends the password."""
    expected = {"user": "me", "password": password, "host": "h", "port": "5433", "dbname": "db"}
    assert given(f"postgresql://me:{password}@h:5433/db") == expected


def test_raw_user_with_an_at_sign() -> None:
    assert given("postgresql://me@corp:pw@h/db") == {"user": "me@corp", "password": "pw", "host": "h", "dbname": "db"}
    assert given("postgresql://me@corp@h") == {"user": "me@corp", "host": "h"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter@h2/x@h/db",  # a database 'x@h/db' on h2, or a password with / in it?
        "postgresql://me:12/hunter@h/db",
        "postgresql://m/e:hunter@h/db",
        "postgresql://me:hunter@h2?hunter=1@h/db",
        "postgresql://me:hunter@h:54x2/db?application_name=a@b",  # a wrong port: not a password up to the last @
        "postgresql://h:54x2/db?user=hunter@corp",
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(url: str) -> None:
    """A wrong guess would send a part of the password to another host."""
    with pytest.raises(BadArgument, match=r"more than one way.*%40") as caught:
        parse(url)
    assert "hunter" not in _everything(caught.value)


# -- what is refused -------------------------------------------------------------------------------------

#: Each with a password, which must not show; and all of what its error must say.
WRONG: list[tuple[str, tuple[str, ...]]] = [
    ("mysql://me:hunter2@h/db", ("begins with 'postgresql://'",)),
    ("me:hunter2@h/db", ("begins with 'postgresql://'",)),
    ("postgresql://me:hunter2\0@h/db", ("NUL",)),
    ("postgresql://me:hunter2\ud800@h/db", ("half of one",)),
    ("postgresql://me:hunter2%00@h/db", ("the password", "NUL")),
    ("postgresql://me:hunter2%ff@h/db", ("the password", "not UTF-8")),
    ("postgresql://me:hunter2%ED%A0%80@h/db", ("the password", "not UTF-8")),
    ("postgresql://me:hunter2%@h/db", ("the password", "Write %25")),
    ("postgresql://m%e:hunter2@h/db", ("the user name", "Write %25")),
    ("postgresql://me:hunter2@h/d%b", ("the database's name", "Write %25")),
    ("postgresql://me:hunter2@h?schema=%", ("the value of 'schema'", "Write %25")),
    ("postgresql://me:hunter2@h%fe/db", ("a host", "not UTF-8")),
    ("postgresql://me:hunter2", ("the port of the host is not a number", "percent-encode")),
    ("postgresql://me:hunter2/db", ("the port of the host is not a number", "percent-encode")),
    ("postgresql://me:hunter2?x/db", ("the port of the host is not a number", "percent-encode")),
    ("postgresql://me:hunter2@h:54x/db", ("the port of the host is not a number",)),
    ("postgresql://me:hunter2@h:/db", ("the port of the host is not a number",)),
    ("postgresql://me:?hunter2=", ("the port of the host is not a number",)),
    ("postgresql://me:hunter2@h:-1/db", ("the port of the host is not a number",)),
    ("postgresql://me:hunter2@h:1,g:x/db", ("the port of host 2 is not a number",)),
    ("postgresql://me:hunter2@h:0/db", ("the port", "out of range", "1 to 65535")),
    ("postgresql://me:hunter2@h:65536/db", ("the port", "out of range", "1 to 65535")),
    ("postgresql://me:hunter2@h:1,g:70000", ("port 2", "out of range")),
    (f"postgresql://me:hunter2@h:{'9' * 5_000}", ("the port", "out of range")),
    ("postgresql://me:hunter2@h?port=abc", ("the port", "not a number")),
    ("postgresql://me:hunter2@h?port=\N{ARABIC-INDIC DIGIT FIVE}", ("the port", "not a number")),
    ("postgresql://me:hunter2@a,b,c?port=1,2", ("more or fewer ports than hosts",)),
    ("postgresql://me:hunter2@a,b?hostaddr=1.1.1.1", ("'host' and 'hostaddr'",)),
    ("postgresql://me:hunter2@a,,b", ("host 2 is empty",)),
    ("postgresql://me:hunter2@a,/db", ("host 2 is empty",)),
    ("postgresql://me:hunter2@h ost/db", ("no host name has", "percent-encode")),
    ("postgresql://me:hunter2@h$/db", ("no host name has",)),
    ("postgresql://me:hunter2@::1/db", ("brackets",)),
    ("postgresql://me:hunter2@[::1/db", ("no host name has",)),
    ("postgresql://me:hunter2@h?sslmode", ("no name or no value",)),
    ("postgresql://me:hunter2@h?=x", ("no name or no value",)),
    ("postgresql://me:hunter2@h?schema=a&", ("no name or no value",)),
    ("postgresql://me:hunter2@h?durabilty=full", ("'durabilty'", "mean 'durability'", "libpq-connect")),
    ("postgresql://me:hunter2@h?sslMode=require", ("'sslMode'", "mean 'sslmode'")),
    ("postgresql://me:hunter2@h?ssl=yes", ("'ssl'", "mean 'sslmode'")),
    ("postgresql://me:hunter2@h?connection_timeout=1", ("'connection_timeout'", "mean 'connect_timeout'")),
    ("postgresql://me:hunter2@h?qqq=1", ("'qqq'", "schema, durability, prepare, push", "libpq-connect")),
    ("postgresql://h?user=me&password=hunter2&hunter2=x", ("option 3", "%26")),
    ("postgresql://h?hunter2!=x", ("option 1", "%26")),
    ("postgresql://me:hunter2@h?client_encoding=utf8", ("'client_encoding'", "UTF8", "Leave it out")),
    ("postgresql://me:hunter2@h?replication=database", ("'replication'", "Leave it out")),
    ("postgresql://me:hunter2@h?sslmode=required", ("'sslmode'", "'require'", "'verify-ca' or 'verify-full'")),
    ("postgresql://me:hunter2@h?sslmode=", ("'sslmode'", "'disable'")),
    ("postgresql://me:hunter2@h?durability=hunter2", ("'durability'", "'full' or 'relaxed'")),
    ("postgresql://me:hunter2@h?prepare=no", ("'prepare'", "'auto', 'on' or 'off'")),
    ("postgresql://me:hunter2@h?push=on", ("'push'", "'auto' or 'off'")),
    ("postgresql://me:hunter2@h?target_session_attrs=rw", ("'target_session_attrs'", "'read-write'")),
    ("postgresql://me:hunter2@h?keepalives=2", ("'keepalives'", "'0' or '1'")),
    ("postgresql://me:hunter2@h?connect_timeout=5s", ("'connect_timeout'", "seconds", "connect_timeout=10")),
    ("postgresql://me:hunter2@h?tcp_user_timeout=-1", ("'tcp_user_timeout'", "milliseconds")),
    ("postgresql://me:hunter2@h?keepalives_count=", ("'keepalives_count'", "probes")),
    ("postgresql://me:hunter2@h?schema=a&schema=a", ("'schema' is given twice",)),
    ("postgresql://me:hunter2@h?ssl=true&sslmode=require", ("'sslmode' is given twice",)),
    ("postgresql://me:hunter2@h?user=me", ("'user' is given twice",)),
    ("postgresql://me:hunter2@h?password=hunter2", ("'password' is given twice",)),
    ("postgresql://me:hunter2@h?host=/tmp", ("'host' is given twice",)),
    ("postgresql://me:hunter2@h:1?port=2", ("'port' is given twice",)),
    ("postgresql://me:hunter2@h/a?dbname=b", ("'dbname' is given twice",)),
    ("postgresql://me:hunter2@h?schema=pg_hunter2", ("reserved",)),
]  # fmt: skip


@pytest.mark.parametrize(("url", "texts"), WRONG)
def test_refused(url: str, texts: tuple[str, ...]) -> None:
    """What is wrong, where, and what to do. FAULTS F16."""
    with pytest.raises(BadArgument) as caught:
        parse(url)
    for text in texts:
        assert text in str(caught.value)


# -- secrets ---------------------------------------------------------------------------------------------


def _everything(error: BaseException | None) -> str:
    """All that a log could hold of an error: texts, reprs, arguments and notes, of its causes and contexts too."""
    text, seen = "", set[int]()
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        text += f"{error} {error!r} {error.args!r} {vars(error)!r} {getattr(error, 'object', '')!r} "
        text += "".join(traceback.TracebackException.from_exception(error, capture_locals=False).format(chain=True))
        waiting += [error.__cause__, error.__context__]
    return text


@pytest.mark.parametrize("url", [url for url, _ in WRONG])
def test_no_error_shows_the_password(url: str) -> None:
    """FAULTS S10: also not in the exceptions it was raised from, or while handling which."""
    with pytest.raises(BadArgument) as caught:
        parse(url)
    assert "hunter" not in _everything(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@h/db",
        "postgresql://:hunter2@h",
        "postgresql://me@h?password=hunter2",
        "postgresql://me:{odd}hunter2@h:5432/db",
        "postgresql://me:{encoded}hunter2@h/db?sslmode=require",
        "postgresql://h?sslpassword=hunter2&sslkey=/hunter2.key&sslcert=/hunter2.crt&passfile=/hunter2",
        "postgresql://h?options=-c%20my.secret%3Dhunter2&oauth_client_secret=hunter2&scram_client_key=hunter2",
    ],
)
def test_nothing_shows_the_password(url: str) -> None:
    """FAULTS S10: every way to make a text of a location. libpq is given it all the same."""
    location = parse(url.format(odd=ODD, encoded=quote(ODD, safe="")))
    parameters = location.parameters
    texts = [location.shown, str(location), repr(location), f"{location}", f"{[location]}", "%s" % location]  # noqa: UP031
    texts += [str(parameters), repr(parameters), f"{parameters}"]
    texts += [repr(copy.copy(location)), repr(copy.deepcopy(location)), repr(copy.deepcopy(parameters))]
    for text in texts:
        assert "hunter" not in text
        assert "ff[]22" not in text
        assert quote("ff[]22") not in text
    assert any("hunter2" in value for value in parameters.values())


def test_a_location_can_be_sent_to_another_process() -> None:
    location = parse("postgresql://me:pw@h/db?schema=x")
    assert pickle.loads(pickle.dumps(location)) == location


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://me:pw@h:5433/db", "postgresql://me@h:5433/db"),
        ("postgresql://h", "postgresql://h"),
        ("postgresql://", "postgresql:///"),
        ("postgresql://m%40e:pw@h/d%2Fb", "postgresql://m%40e@h/d%2Fb"),
        ("postgresql://me:pw@[::1]:5433/db", "postgresql://me@[::1]:5433/db"),
        ("postgresql://[fe80::1%25eth0]/db", "postgresql://[fe80::1%25eth0]/db"),
        ("postgresql://%2Ftmp:5433/db", "postgresql:///db?host=/tmp&port=5433"),
        ("postgresql:///?host=@name&user=me", "postgresql://me@/?host=%40name"),
        ("postgresql://:5433/db", "postgresql:///db?port=5433"),
        ("postgresql://a:1,b/db", "postgresql://a:1,b/db?target_session_attrs=read-write"),
        ("postgresql://a,b/db?port=5", "postgresql://a:5,b:5/db?target_session_attrs=read-write"),
        ("postgresql://?host=/tmp,b&port=1,2", "postgresql:///?target_session_attrs=read-write&host=/tmp,b&port=1,2"),
        ("postgresql://?hostaddr=::1&port=1", "postgresql:///?hostaddr=::1&port=1"),
        ("postgresql://h?sslmode=require&sslkey=/k", "postgresql://h?sslmode=require"),
        ("postgresql://h?service=x&schema=a%26b%0A", "postgresql://h?service=x&schema=a%26b%0A"),
        (
            "postgresql://h?push=off&prepare=on&durability=full",
            "postgresql://h?durability=full&prepare=on&push=off",
        ),
    ],
)
def test_shown(url: str, shown: str) -> None:
    """It can be read, and given back to perdure: only the secrets are missing then."""
    location = parse(url)
    assert location.shown == shown
    again = parse(shown)
    assert again.shown == shown
    for name in ("user", "host", "dbname", "hostaddr"):
        assert again.parameters.get(name) == location.parameters.get(name)
    assert (again.schema, again.push, again.prepare) == (location.schema, location.push, location.prepare)


def test_a_location_can_be_made_without_a_url() -> None:
    assert Location({}, "somewhere") == Location({}, "somewhere", "perdure", "full", "auto", "auto")
    assert repr(Location({"password": "hunter2"}, "somewhere")) == "Location('somewhere')"


# -- opening ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "PostgreSQL"])
def test_without_psycopg(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install, and nothing of the URL. FAULTS S10."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)  # pyright: ignore
    url = f"{scheme}://me:hunter2@h/db"
    with pytest.raises(StoreUnusable, match=r"pip install 'perdure\[postgres\]'") as caught:
        open_store(url)
    assert "hunter" not in _everything(caught.value)


@pytest.mark.parametrize("url", ["postgresql:/me:hunter2@h/db", "Postgres:me:hunter2@h", "postgresql:"])
def test_a_url_without_its_slashes_is_no_file(url: str) -> None:
    """It would be made, with the password in its name. FAULTS S10."""
    with pytest.raises(BadArgument, match="'//' after") as caught:
        open_store(url)
    assert "hunter" not in _everything(caught.value)


def test_the_forms_of_a_store_name_postgresql() -> None:
    with pytest.raises(BadArgument, match="'postgresql://user@host/database'"):
        open_store("")
