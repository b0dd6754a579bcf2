"""One thread in PostgreSQL under `eventq work`: which of its handlers this machine runs.

The commands come from a database that others write to, so a file on this machine says which of them
it runs. Notices wake it; each second it also looks by itself.
"""

from __future__ import annotations

from eventq.errors import EventqError
from eventq.running.supervisor import Supervisor
from eventq.running.thread_runner import ThreadRunner
from eventq.thread import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from eventq.records.consumer import ConsumerState
    from eventq.running.allowed import Allowed
    from eventq.store.protocol import Watcher


class SharedRunner(ThreadRunner):
    """A thread that several machines work for."""

    look_each_second = True
    heir = "another worker"

    def __init__(
        self,
        path: str,
        names: Collection[str],
        say: Callable[[str], object],
        *,
        allowed: Allowed,
        guard: Callable[[str, float | None], object],
    ) -> None:
        """Take what `ThreadRunner` does; `guard` is as of a `Supervisor`."""
        super().__init__(path, names, say)
        self._allowed, self._guard = allowed, guard
        self._watcher: Watcher | None = None

    def _connect(self) -> Thread:
        thread = Thread(self.path)
        self._watcher = thread.database.watch()
        return thread

    def _supervise(self, thread: Thread) -> Supervisor:
        return Supervisor(
            thread.layout,
            thread.consumers,
            thread.journal,
            {},
            is_ours=self._is_ours,
            guard=self._guard,
        )

    def _is_ours(self, state: ConsumerState) -> bool:
        settings = state.settings
        if not super()._is_ours(state) or settings.label not in self._allowed.labels:
            return False
        command = settings.command if settings.kind == "each" else state.handler
        if command is not None and self._allowed(command):
            return True
        self._complain(
            f"consumer '{state.consumer}' is left to other machines: '{self._allowed.path}' does"
            f" not allow its command, {command!r}"
        )
        return False

    def _traced(self) -> object:
        return self._open()[0].database.trace(), self._allowed.version()

    def has_changed(self) -> bool:
        """Return whether anything has changed since the last look; read the notices that came."""
        try:
            heard = self._watcher is not None and self._watcher.wait(0)
            return super().has_changed() or heard
        except EventqError as error:
            self.fail(error)
            return False

    def fileno(self) -> int:
        """Return the descriptor on which notices come; -1 for none."""
        return -1 if self._watcher is None else self._watcher.fileno()

    def close(self) -> None:
        """Close the thread and the connection that listens."""
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        super().close()
