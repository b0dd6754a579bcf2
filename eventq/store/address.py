"""The URL of a thread in PostgreSQL: `postgresql://user@host/database?thread=NAME`.

Everything but `thread` and `pooled` is libpq's: several hosts, `sslmode`, a password in `.pgpass`
or the environment.
"""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from blake3 import blake3

from eventq.errors import UsageError
from eventq.record import Record
from eventq.records.checks import check_name

_SCHEMES = ("postgresql", "postgres")
_EXAMPLE = (
    "write postgresql://user@host/database?thread=NAME, the password into ~/.pgpass or PGPASSWORD"
    "; in the URL, @ / ? # % of a password are %40 %2F %3F %23 %25"
)
_SECRETS = ("password", "passwd", "pass", "pwd")  # libpq knows the first, and repeats the others
_SAFE = "/-._~"


class Address(Record):
    """A database, and a thread in it.

    `conninfo` is the URL for libpq, `shown` the whole one for people, without a password. `pooled`
    says that a pooler hands out connections by the transaction: then nothing stays prepared.
    """

    conninfo: str
    shown: str
    thread: str | None
    pooled: bool
    password: str | None

    @property
    def environ(self) -> dict[str, str]:
        """What a program needs to open it that knows the URL without the password."""
        return {} if self.password is None else {"PGPASSWORD": self.password}

    @property
    def name(self) -> str:
        """The name of the thread. Raises UsageError for a URL without one."""
        if self.thread is None:
            raise UsageError(f"'{self.shown}' names no thread", "add ?thread=NAME to the URL")
        return self.thread

    @property
    def database(self) -> str:
        """The URL of the database, without a thread and a password."""
        return self.at(None)

    @property
    def bucket(self) -> int:
        """The number that rows of this thread are distributed by."""
        return bucket_of(self.name)

    def at(self, thread: str | None) -> str:
        """Return the URL of another thread in the same database."""
        return with_thread(self.shown, thread)


def with_thread(url: str, thread: str | None) -> str:
    """Return a URL with another thread, or none; its password stays."""
    parts = urlsplit(url)
    query = [(key, value) for key, value in parse_qsl(parts.query) if key != "thread"]
    if thread is not None:
        query.append(("thread", thread))
    return _joined(parts.netloc, parts.path, dict(query))


def bucket_of(name: str, tenant: int = 0) -> int:
    """Return the first byte of BLAKE3 of tenant, NUL and name, for ever the same."""
    return blake3(f"{tenant}\0{name}".encode()).digest()[0]


def parse(text: str) -> Address:
    """Return the parts of a URL. Raises UsageError, which shows no password."""
    try:
        parts = urlsplit(text)
        fields = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise UsageError("the URL of the database cannot be read", _EXAMPLE) from error
    known = dict(fields)
    if parts.scheme not in _SCHEMES or parts.fragment or len(known) < len(fields):
        raise UsageError("the URL of the database cannot be read", _EXAMPLE)
    hosts = _hosts(parts.netloc)
    password = known.get("password") or unquote(parts.password or "") or None
    if _is_torn(parts.path, known, hosts) or "\0" in (password or ""):
        raise UsageError("the URL of the database cannot be read", _EXAMPLE)
    thread, pooled = known.pop("thread", None), known.pop("pooled", "0")
    shown = {key: value for key, value in known.items() if key.lower() not in _SECRETS}
    if thread is not None:
        check_name(thread, "thread")
        shown["thread"] = thread
    if pooled not in ("0", "1"):
        raise UsageError(f"pooled is '{pooled:.50}'", "write pooled=1, or leave it out")
    if pooled == "1":
        shown["pooled"] = "1"
    known.setdefault("target_session_attrs", "read-write")
    if "sslmode" not in known and not _is_local(known, [host for host, _ in hosts]):
        known["sslmode"] = "verify-full"
        known.setdefault("sslrootcert", "system")
    if password:
        known["password"] = password  # quoted here: libpq shows one that it cannot read
    place = _hidden(parts.netloc)
    return Address(
        _joined(place, parts.path, known),
        _joined(place, parts.path, shown),
        thread,
        pooled == "1",
        password,
    )


def _joined(place: str, path: str, fields: dict[str, str]) -> str:
    query = urlencode(fields, safe=_SAFE, quote_via=quote)
    return f"postgresql://{place}{path}{'?' * bool(query)}{query}"


def _hidden(place: str) -> str:
    """Return user, hosts and ports without a password."""
    user, at, hosts = place.rpartition("@")
    return f"{user.partition(':')[0]}{at}{hosts}"


def _hosts(place: str) -> list[tuple[str, str]]:
    """Return the hosts, each with its port or with an empty text."""
    found = []
    for one in place.rpartition("@")[2].split(","):
        address, _, rest = one.rpartition("]")  # the one of IPv6 has colons
        host, _, port = rest.partition(":")
        found.append((address.removeprefix("[") or host, port))
    return found


def _is_torn(path: str, known: dict[str, str], hosts: list[tuple[str, str]]) -> bool:
    """Return whether a password seems to go on where a path or a query begins: by a `/` or `?`."""
    ports = "".join(port for _, port in hosts)
    return "@" in path or "@" in "".join(known) or not (ports or "0").isdigit()


def _is_local(known: dict[str, str], hosts: list[str]) -> bool:
    """Return whether nobody is between us and the server: a socket, or this machine."""
    named = known.get("hostaddr") or known.get("host") or ",".join(hosts)
    named = named or os.environ.get("PGHOSTADDR") or os.environ.get("PGHOST", "")
    return all(map(_is_here, named.split(",")))


def _is_here(host: str) -> bool:
    is_loopback = host.startswith("127.") and host.isascii() and host.replace(".", "").isdigit()
    return is_loopback or host.startswith("/") or host in ("", "localhost", "::1")
