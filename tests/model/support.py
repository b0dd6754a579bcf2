"""What the models share: a thread in a folder of its own, and how random programs are run."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

import eventq

if TYPE_CHECKING:
    import pytest


def bounded(max_examples: int, **more: Any) -> settings:
    """Return the settings of a property: the same examples each time, however slow the machine."""
    return settings(
        max_examples=max_examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        **more,
    )


class Beside(RuleBasedStateMachine):
    """A thread beside a model; it must check out in the end."""

    def make_thread(self) -> None:
        """Open a fresh thread."""
        self.folder = tempfile.mkdtemp()
        self.path = eventq.init(os.path.join(self.folder, "thread"))
        self.thread = eventq.open(self.path)

    def open_again(self) -> None:
        """Close the thread and open it."""
        self.thread.close()
        self.thread = eventq.open(self.path)

    def teardown(self) -> None:
        """Check the thread and delete it."""
        if hasattr(self, "thread"):
            found = self.thread.check()
            self.thread.close()
            shutil.rmtree(self.folder)
            assert found == []


def drive(
    machine: type[Beside], monkeypatch: pytest.MonkeyPatch, examples: int, steps: int
) -> None:
    """Run random programs of a machine, without syncs: no power is cut here."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    run_state_machine_as_test(machine, settings=bounded(examples, stateful_step_count=steps))
