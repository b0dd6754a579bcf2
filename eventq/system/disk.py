"""Files and folders: modes, writes that are whole, and descriptors."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import BinaryIO

_MOST_FILES = 65_536
_file_limits: list[tuple[int, int]] = []  # before they were raised


def mode_like(path: str) -> int:
    """Return the permissions of a file, for a new one; owner only if it is missing."""
    try:
        return os.stat(path).st_mode & 0o666
    except OSError:
        return 0o600


def make_folder(path: str, like: str, mode: int | None = None) -> None:
    """Create a folder and its parents, with the permissions and the owner of the file `like`."""
    if os.path.isdir(path):
        return
    if (parent := os.path.dirname(path)) and not os.path.isdir(parent):
        make_folder(parent, like, mode)
    if mode is None:
        mode = 0o700 | (found := mode_like(like)) | (found >> 2 & 0o111)
    try:
        os.mkdir(path, mode)
    except FileExistsError:  # made meanwhile, or no folder
        if not os.path.isdir(path):
            raise
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _give(fd, path, like)
    finally:
        os.close(fd)


def create(path: str, flags: int, like: str, mode: int | None = None) -> int:
    """Open a file to write; one that is missing gets permissions and owner of the file `like`.

    Nothing else may make a file of a thread: root, who helps out once, would lock its owner out.
    Only what was made here is given away: a link that the owner has put there may lead anywhere.
    """
    flags = flags & ~os.O_CREAT | os.O_CLOEXEC
    try:
        if not flags & os.O_EXCL:
            return os.open(path, flags)
    except FileNotFoundError:
        pass
    mode = mode_like(like) if mode is None else mode
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags | os.O_CREAT, mode)  # made meanwhile, or a link to nothing
    try:
        _give(fd, path, like)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _give(fd: int, path: str, like: str) -> None:
    """Give what we have just made to the owner of the file `like`, or tell that it is not theirs.

    As SQLite does with the files beside a database.
    """
    me = os.geteuid()
    try:
        owner = os.stat(like)
        if owner.st_uid == me or os.fstat(fd).st_uid == owner.st_uid:
            return
        os.fchown(fd, owner.st_uid, owner.st_gid)
    except FileNotFoundError:
        pass  # the thread was deleted
    except OSError:
        if _locks_out(os.fstat(fd), owner):
            tell(f"Warning: {foreign(path, like)}")


def _locks_out(found: os.stat_result, owner: os.stat_result) -> bool:
    """Return whether the owner of one file cannot write another, as far as modes tell."""
    by_group = found.st_gid == owner.st_gid and found.st_mode & 0o020
    return found.st_uid != owner.st_uid and not by_group and not found.st_mode & 0o002


def is_foreign(path: str, like: str) -> bool:
    """Return whether the owner of the file `like`, or this process, may not write to a path."""
    try:
        found = os.lstat(path)
        is_ours = found.st_uid == os.geteuid() or os.access(path, os.W_OK, effective_ids=True)
        return not is_ours or _locks_out(found, os.stat(like))
    except OSError:
        return False


def foreign(path: str, like: str) -> str:
    """Return what is wrong with a path that is foreign, with the command that mends it."""
    from eventq.errors import cited

    command = given_back(like)
    return f"'{path}' belongs to {_name(os.lstat(path).st_uid)}; run {cited(command)}"


def given_back(like: str) -> str:
    """Return the command that gives all files beside `like` to its owner."""
    from shlex import quote

    owner = os.stat(like)
    sudo = "sudo " if os.geteuid() else ""
    folder = quote(os.path.dirname(like))
    return f"{sudo}chown -hR {_name(owner.st_uid)}:{owner.st_gid} {folder}"


def _name(user: int) -> str:
    from pwd import getpwuid

    try:
        return getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _warn(text: str) -> None:
    import warnings

    warnings.warn(text, stacklevel=4)


tell: Callable[[str], object] = _warn  # the command line writes it to stderr


def is_read_only(path: str) -> bool:
    """Return whether a file is on a file system that is mounted to be read."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (OSError, AttributeError):  # it is gone, or this system does not say so
        return False


def sync_folder(path: str) -> None:
    """Sync the names in a folder to the disk, as far as the system supports it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # the folder is writable but not readable
    try:
        os.fsync(fd)
    except OSError:
        pass  # the file system does not support it
    finally:
        os.close(fd)


def inode_in(folder: str, name: str) -> int:
    """Return the inode of a name in a folder as the folder has it; 0 for none, or if it hides it.

    Unlike `stat` of the file, this reads no time: Linux 6.13 and later give a file whose time was
    read another one with its next change, for which each durable commit has to wait.
    """
    try:
        with os.scandir(folder) as entries:
            return next((entry.inode() for entry in entries if entry.name == name), 0)
    except OSError:
        return 0


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of `data`. Raises OSError if the system refuses.

    Waits for a full pipe or terminal, even if its other end made it non-blocking.
    """
    while data:
        try:
            data = memoryview(data)[os.write(fd, data) :]
        except BlockingIOError:
            import select

            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


def open_regular(path: str, *, follow: bool = True, buffering: int = -1) -> BinaryIO:
    """Open a file of an untrusted folder; raise OSError (EINVAL) for all but a regular file.

    Opening a pipe would block, and a device may have no end. `follow` allows a symbolic link to a
    regular file.
    """
    import stat
    from errno import EINVAL

    # Check before opening, as opening alone activates some devices. Then check again: the file may
    # have been replaced.
    found = os.stat(path, follow_symlinks=follow)
    if stat.S_ISREG(found.st_mode):
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        fd = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return open(fd, "rb", buffering=buffering)
        os.close(fd)
    raise OSError(EINVAL, "it is not a regular file", path)


def unnamed_file(folder: str | None) -> BinaryIO:
    """Return a new file without a name: it is gone with its descriptor, even after a crash.

    It is on the disk of a folder, or of temporary files without one, or where it takes none.
    """
    from tempfile import TemporaryFile

    try:
        return TemporaryFile(dir=folder)
    except OSError:
        return TemporaryFile()


def save(path: str, pieces: Iterable[bytes], *, mode: int = 0o666) -> int:
    """Write a file atomically, even across a power cut, and return its size in bytes."""
    folder = os.path.dirname(path) or "."
    temporary = f"{folder}/.eventq-{os.urandom(8).hex()}.tmp"
    size = 0
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            for piece in pieces:
                write_all(fd, piece)
                size += len(piece)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_folder(folder)
    return size


def allow_more_files() -> None:
    """Let this process open as many files as the system allows; programs that it starts may not.

    Some of those still use `select`, which cannot watch a descriptor above 1,023.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        _file_limits.append((soft, hard))


def restore_file_limit() -> None:
    """Undo `allow_more_files` in a process that is about to become another program."""
    if _file_limits:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, _file_limits[0])
