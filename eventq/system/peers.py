"""Whose process is at the other end of a connection of this machine, as the system says."""

from __future__ import annotations

import sys
from ipaddress import IPv6Address, ip_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ipaddress import IPv4Address

    Address = IPv4Address | IPv6Address

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")  # of Linux; other systems have none
_LOCAL, _REMOTE, _USER, _INODE = 1, 2, 7, 9  # fields of a line


def user_of(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the user whose process has opened a connection from `peer` to `own`.

    None if no table names it: it comes from another machine, or the system has no such tables.
    """
    wanted = [(_plain(ip_address(host.split("%")[0])), port) for host, port in (peer, own)]
    for table in TABLES:
        try:
            with open(table, encoding="ascii", errors="replace") as lines:
                next(lines, None)  # the names of the fields
                for line in lines:
                    fields = line.split()
                    # One that was closed has no file, and is said to be root's.
                    if len(fields) > _INODE and fields[_INODE] != "0" and [
                        _end(fields[_LOCAL]), _end(fields[_REMOTE])
                    ] == wanted:  # fmt: skip
                        return int(fields[_USER])
        except OSError:
            continue
    return None


def is_loopback(host: str) -> bool:
    """Return whether an address is one that only this machine uses."""
    return _plain(ip_address(host.split("%", maxsplit=1)[0])).is_loopback


def _end(text: str) -> tuple[Address, int]:
    """Return address and port of `0100007F:2332`: words of 32 bits in the machine's order."""
    digits, _, port = text.partition(":")
    data = bytes.fromhex(digits)
    if sys.byteorder == "little":
        data = b"".join(data[at : at + 4][::-1] for at in range(0, len(data), 4))
    return _plain(ip_address(data)), int(port, 16)


def _plain(address: Address) -> Address:
    """Return an address of IPv4 that is written as one of IPv6 as what it is."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
