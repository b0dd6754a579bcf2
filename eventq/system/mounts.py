"""The file system that a folder is on: SQLite's WAL needs one that belongs to this machine."""

from __future__ import annotations

import os
import re

from eventq.errors import PlatformError

NETWORK = {
    "nfs": "NFS", "nfs4": "NFS", "cifs": "SMB", "smb3": "SMB", "smbfs": "SMB", "9p": "9p",
}  # fmt: skip
TABLE = "/proc/self/mountinfo"  # of Linux; elsewhere nothing is known, and nothing refused
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def check_local(path: str) -> None:
    """Raise PlatformError for a path on NFS, SMB or 9p, where locks and shared memory fail."""
    name = NETWORK.get(kind_of(path))
    if name is not None:
        raise PlatformError(
            f"'{path}' is on {name}, and a thread needs a disk of this machine",
            "choose a local folder, and share the thread with 'eventq serve'",
        )


def kind_of(path: str) -> str:
    """Return the type of the file system that a path is on, or will be; "" if unknown."""
    real = os.fsencode(os.path.realpath(path))
    found, longest = "", -1
    for point, kind in _mounts():
        inside = real == point or real.startswith(point.rstrip(b"/") + b"/")
        if inside and len(point) >= longest:  # of two at one place, the later one is seen
            found, longest = kind, len(point)
    return found


def _mounts() -> list[tuple[bytes, str]]:
    """Return mount point and type of each mounted file system, in the order of the mounts."""
    try:
        with open(TABLE, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        before, _, after = line.partition(b" - ")
        fields, kinds = before.split(b" "), after.split(b" ")
        if len(fields) > 4 and kinds[0]:
            point = _ESCAPED.sub(lambda code: bytes([int(code[1], 8)]), fields[4])
            found.append((point, kinds[0].decode(errors="replace")))
    return found
