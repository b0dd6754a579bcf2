"""Blocks of `with` that an interrupt (Ctrl-C) leaves neither locked nor half undone.

Python may raise an interrupt as any function begins, so also before the first line of `__exit__`:
then nothing in it runs. Python's own locks escape that, as theirs is no function of Python. What a
block can rely on is the end of the reference that `with` keeps to what it calls at the end.
"""

from __future__ import annotations

from _weakref import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from functools import partial
else:
    from _functools import partial  # without the module around it, which a command can do without


class _End:
    """What `with` calls as a block ends: it fetches that first, and drops it after the call.

    A bound method would be dropped before the call, and an object with `__call__` would be kept by
    the traceback of what interrupted it.
    """

    def __get__(self, block: Block | None, kind: type[Block]) -> object:
        if block is None:
            return kind.leave  # for `contextlib.ExitStack`
        end = partial(kind.leave, block)
        block._guard = ref(end, block.undo)  # noqa: SLF001 (it is this module's own)
        return end


class Block:
    """A context manager whose `undo` runs if an interrupt kept `leave` from its end."""

    _guard: ref[object] | None = None

    def leave(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the block, and then drop `_guard`: nothing is left to undo."""
        raise NotImplementedError

    def undo(self, *_: object) -> None:
        """Undo what is left of the block, if anything is; in the OS thread that was inside."""
        raise NotImplementedError

    if TYPE_CHECKING:
        __exit__ = leave
    else:
        __exit__ = _End()
