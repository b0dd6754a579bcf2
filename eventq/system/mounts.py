"""The file system that a folder is on: SQLite's WAL needs one that one kernel alone writes."""

from __future__ import annotations

import os

from eventq.errors import PlatformError

# Types of file systems on which locks and shared memory do not hold for all who write: other
# machines, or the host of a container or of a virtual machine. FUSE has many types, `fuse.sshfs`.
_SHARED = {
    "9p": "9p", "afs": "AFS", "beegfs": "BeeGFS", "ceph": "Ceph", "cifs": "SMB", "fakeowner": "a"
    " folder of Docker's host", "gfs2": "GFS2", "gpfs": "GPFS", "lustre": "Lustre", "ncpfs": "NCP",
    "nfs": "NFS", "nfs4": "NFS", "ocfs2": "OCFS2", "orangefs": "OrangeFS", "prl_fs": "a folder of"
    " the host", "smb3": "SMB", "smbfs": "SMB", "vboxsf": "a folder of the host", "virtiofs":
    "virtiofs", "vmhgfs": "a folder of the host",
}  # fmt: skip
_FUSE = ("fuse", "fuseblk")
TABLE = "/proc/self/mountinfo"  # of Linux; elsewhere nothing is known, and nothing refused


def check_local(path: str) -> None:
    """Raise PlatformError for a path on a file system that others than this kernel may write."""
    kind = kind_of(path)
    name = f"FUSE ({kind})" if kind.split(".")[0] in _FUSE else _SHARED.get(kind)
    if name is not None:
        raise PlatformError(
            f"'{path}' is on {name}, where SQLite's locks do not hold for everybody who writes",
            "choose a folder on a disk of this machine, and share it with 'eventq serve'; if"
            " only this machine writes there, run 'eventq init --any-mount', or for a thread that"
            " is there 'eventq config any_mount true'",
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
            found.append((_plain(fields[4]), kinds[0].decode(errors="replace")))
    return found


def _plain(point: bytes) -> bytes:
    """Return a mount point whose blanks and others were escaped, each as three octal digits."""
    first, *others = point.split(b"\\")
    return first + b"".join(bytes([int(one[:3], 8)]) + one[3:] for one in others)
