"""One thread in PostgreSQL under `eventq work`: which of its handlers this machine runs.

The commands come from a database that others write to, so a file on this machine says which of them
it runs. Notices wake it, for all threads of a database over one connection.
"""

from __future__ import annotations

from eventq.errors import EventqError
from eventq.running.supervisor import Supervisor
from eventq.running.thread_runner import ThreadRunner
from eventq.store.opening import watchers
from eventq.store.shared_paths import SharedLayout
from eventq.thread import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from eventq.records.consumer import ConsumerState
    from eventq.running.allowed import Allowed
    from eventq.store.address import Address


class News:
    """What is heard of the threads of one database, for the runners of all of them."""

    def __init__(self, address: Address, say: Callable[[str], object]) -> None:
        """Begin with no runner; `say` gets a line for people."""
        self._place, self._say = address.database, say
        self._watchers = watchers(address)
        self._runners: dict[str, SharedRunner] = {}  # by the names of their threads
        self._trouble = ""  # that was said

    def add(self, name: str, runner: SharedRunner) -> None:
        """Hear of a thread; the next `take` names it."""
        if name not in self._runners:
            self._watchers.add(name)
        self._runners[name] = runner

    def remove(self, name: str) -> None:
        """Hear of a thread no longer."""
        self._runners.pop(name, None)
        self._watchers.remove(name)

    def fileno(self) -> int:
        """Return the descriptor on which notices come; -1 for none."""
        return self._watchers.fileno()

    def take(self) -> set[str]:
        """Return the paths of the threads that may have changed; none while the server is gone."""
        try:
            names, self._trouble = self._watchers.wait(0), ""
        except EventqError as error:
            self._complain(error)
            return set()
        return {self._runners[name].path for name in names & self._runners.keys()}

    def refresh(self) -> None:
        """Refresh the holds of all."""
        held = [(name, one) for name, runner in self._runners.items() for one in runner.held]
        try:
            self._watchers.hold(held)
        except EventqError as error:
            self._complain(error)

    def _complain(self, error: EventqError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._say(f"{self._place}: {error}")

    def close(self) -> None:
        """End."""
        self._watchers.close()


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
        news_of: Callable[[Address], News],
    ) -> None:
        """Take what `ThreadRunner` does; `guard` is as of a `Supervisor`."""
        super().__init__(path, names, say)
        self._allowed, self._guard, self._news_of = allowed, guard, news_of
        self._news: News | None = None
        self._name = ""

    @property
    def held(self) -> Collection[str]:
        """The consumers that this process works for."""
        return self._holds.keys()

    def _connect(self) -> Thread:
        thread = Thread(self.path)
        assert isinstance(thread.layout, SharedLayout)
        address = thread.layout.address
        self._name, self._news = address.name, self._news_of(address)
        self._news.add(self._name, self)
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
        return self._allowed.version()  # of the thread itself there are news

    def refresh(self) -> None:
        """Do nothing: the holds of all threads are refreshed at once."""

    def release(self) -> None:
        """Let pushes start handlers again, and hear of the thread no longer."""
        super().release()
        if self._news is not None:
            self._news.remove(self._name)
