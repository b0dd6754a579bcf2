"""The locking part of `portalocker`, without the package, whose other parts take longer to import.

The part is loaded as a submodule of this module, so it is a copy of its own: a program that imports
`portalocker` too, or changes its `LOCKER`, does not meet it. A package that is laid out in another
way is imported whole.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from portalocker import AlreadyLocked, LockException, LockFlags, lock
else:
    from _frozen_importlib_external import PathFinder
    from fcntl import flock

    _package = PathFinder.find_spec("portalocker")
    __path__ = (_package and _package.submodule_search_locations) or []
    try:
        from eventq.system.flock import portalocker as _part

        # Its default; a lock of another kind would not exclude those who call `flock` themselves.
        _part.LOCKER = flock
        lock, LockFlags, _errors = _part.lock, _part.LockFlags, _part.exceptions
        AlreadyLocked, LockException = _errors.AlreadyLocked, _errors.LockException
    except (ImportError, AttributeError):
        from portalocker import AlreadyLocked, LockException, LockFlags, lock

__all__ = ["AlreadyLocked", "LockException", "LockFlags", "lock"]
