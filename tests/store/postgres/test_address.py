"""The URL of a thread in PostgreSQL: what libpq gets of it, and what people see."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from eventq.errors import UsageError
from eventq.store.address import bucket_of, parse

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "given", "shown"),
    [
        (
            "postgresql://bob:s3cr3t@h1:5432,h2:5433/db?thread=a%20b&pooled=1",
            {
                "user": "bob",
                "password": SECRET,
                "dbname": "db",
                "host": "h1,h2",
                "port": "5432,5433",
            },
            "postgresql://bob@h1:5432,h2:5433/db?thread=a%20b&pooled=1",
        ),
        (
            "postgres:///db?host=/tmp/x&thread=a b",
            {"dbname": "db", "host": "/tmp/x"},
            "postgresql:///db?host=/tmp/x&thread=a%20b",
        ),
        (
            "postgresql://u%40x@h/db?password=s3cr3t&sslmode=require&thread=a+b",
            {"user": "u@x", "password": SECRET, "host": "h", "sslmode": "require", "dbname": "db"},
            "postgresql://u%40x@h/db?sslmode=require&thread=a%20b",
        ),
    ],
)
def test_what_is_whose(url: str, given: dict[str, str], shown: str) -> None:
    """The thread is ours, and no password is shown; what is shown leads to the same place."""
    found = parse(url)
    assert given.items() <= conninfo_to_dict(found.conninfo).items()
    assert "thread" not in found.conninfo
    assert (found.name, found.shown, found.password) == ("a b", shown, given.get("password"))
    assert SECRET not in found.shown + found.database + found.at("other")
    assert parse(found.shown).shown == shown
    assert parse(found.at("x&y=z")).name == "x&y=z"


@pytest.mark.parametrize(
    ("place", "checked"),
    [
        ("host", True), ("host:1", True), ("10.0.0.1", True), ("h1,localhost", True),
        ("localhost", False), ("127.0.0.1:5432", False), ("", False), ("[::1]:1", False),
        ("localhost:1,host:2", True), ("[::1],[fe80::1]:2", True), ("[fe80::1]", True),
        ("127.0.0.1.example.org", True), ("127.example", True), ("127.1", False),
    ],
)  # fmt: skip
def test_a_server_elsewhere_is_checked(
    monkeypatch: pytest.MonkeyPatch, place: str, checked: bool
) -> None:
    """Unless the URL says otherwise: its certificate, and its name. Only the first of them writes.

    It is the same for a host in the query, and for one in the environment if the URL has none.
    """
    for key in ("PGHOST", "PGHOSTADDR"):
        monkeypatch.delenv(key, raising=False)
    _is_checked(f"postgresql://{place}/db?thread=x", checked)
    if ":" not in place:
        for key in ("host", "hostaddr"):
            _is_checked(f"postgresql:///db?{key}={place}&thread=x", checked)
            monkeypatch.setenv(f"PG{key.upper()}", place)
            _is_checked("postgresql:///db?thread=x", checked)
            monkeypatch.delenv(f"PG{key.upper()}")
    _is_checked("postgresql://localhost/db?hostaddr=10.0.0.1&thread=x", checked=True)


def _is_checked(url: str, checked: bool) -> None:
    given = conninfo_to_dict(parse(url).conninfo)
    assert given["target_session_attrs"] == "read-write"
    assert given.get("sslmode") == ("verify-full" if checked else None)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cr3t@[h/db?thread=a",
        "postgresql://u:s3cr3t@h/db?thread=a&thread=b",
        "postgresql://u:s3cr3t@h/db?thread",
        "postgresql://u:s3cr3t@h/db?thread=",
        "postgresql://u:s3cr3t@h/db?thread=a%00",
        "postgresql://u:s3cr3t@h/db?thread=a#b",
        "postgresql://u:s3cr3t@h/db?thread=a&pooled=yes",
        "postgresql://u:x/s3cr3t@h/db?thread=a",
        "postgresql://u:1/s3cr3t@h/db?thread=a",
        "postgresql://u:s3cr3t/x@h/db?thread=a",
        "postgresql://u:s3cr3t?x@h/db?thread=a",
        "postgresql://u:1?s3cr3t@h/db?thread=a",
        "postgresql://u:s3cr3t?x=y@h/db?thread=a",
        "postgresql://u:s3cr3t#x@h/db?thread=a",
        "postgresql://u:s3cr3t%00@h/db?thread=a",
        "postgresql://u@h/db?thread=a&password=s3cr3t%00",
        "mysql://u:s3cr3t@h/db?thread=a",
    ],
)
def test_what_is_no_url(url: str) -> None:
    """It is refused without its password, also where a password was not quoted and divides it."""
    with pytest.raises(UsageError) as caught:
        parse(url).name  # noqa: B018
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", ["a@b", "50%", "%zz", "a b", "a:b", "a\\b", "ä", "a&b=c+d"])
def test_passwords_that_nobody_quoted(text: str) -> None:
    """They are taken as they stand, and libpq, whose errors repeat a bad one, gets them quoted."""
    found = parse(f"postgresql://u:{text}@h/db?thread=a")
    given = conninfo_to_dict(found.conninfo)
    assert (given["password"], given["user"], given["host"]) == (text, "u", "h")
    assert (found.password, found.shown) == (text, "postgresql://u@h/db?thread=a")


@pytest.mark.parametrize("key", ["PASSWORD", "passwd", "pwd"])
def test_a_password_under_a_wrong_name(key: str) -> None:
    """It is not shown either by the error that follows from the name."""
    assert SECRET not in parse(f"postgresql://u@h/db?thread=a&{key}={SECRET}").shown


def test_a_url_without_a_thread() -> None:
    """It names a database; whoever needs a thread says so."""
    found = parse("postgresql://localhost/db")
    assert found.database == "postgresql://localhost/db"
    with pytest.raises(UsageError, match=r"names no thread - add \?thread=NAME"):
        found.name  # noqa: B018


@given(st.text(min_size=1, max_size=30))
def test_any_name(name: str) -> None:
    """Whatever a thread is called, its URL leads to it."""
    try:
        url = parse("postgresql://localhost/db").at(name)
        assert parse(url).name == name
    except UsageError:
        assert not name.isprintable()
    except UnicodeEncodeError:
        assert any("\ud800" <= character <= "\udfff" for character in name)


def test_buckets() -> None:
    """They are the same for ever, and all alike."""
    assert [bucket_of(name) for name in ("inbox", "a", "ä")] == [86, 173, 210]
    assert len({bucket_of(str(number)) for number in range(3000)}) == 256
