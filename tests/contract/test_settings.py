"""The settings of a thread: what they take, how long they stay, and where there is no table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import InputError, ReadOnlyError, UsageError
from eventq.records.info import Setting

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contract.memory import Stored

pytestmark = pytest.mark.usefixtures("quick")
ANY = Setting("any_mount", "false", "false")
HOOKS = Setting("hooks.sessions", "on", "on")


def test_a_setting_has_its_default_until_it_is_changed(thread: eventq.Thread) -> None:
    """What is set is there for all who open the thread; the default is no value of its own."""
    assert [*thread.settings] == [ANY, HOOKS, Setting("runs.emit", "off", "off")]
    for given, value in (("on", "self"), ("internal:a:b:c", "internal:a:b:c"), ("off", "off")):
        thread.settings.set("runs.emit", given)
        assert thread.settings.get("runs.emit") == value
        with eventq.open(thread.path, read_only=True) as other:
            assert [*other.settings] == [ANY, HOOKS, Setting("runs.emit", value, "off")]
    assert thread.database.memory.settings.get("runs.emit") is None


@pytest.mark.parametrize("name", ["", "runs", "runs.Emit", "off", []])
def test_unknown_settings(thread: eventq.Thread, stored: Stored, name: Any) -> None:
    """A name that no setting has is refused with those that there are."""
    before = stored()
    for call in (thread.settings.get, lambda name: thread.settings.set(name, "on")):
        with pytest.raises(UsageError) as caught:
            call(name)
        assert caught.value.what == f"there is no setting '{name}'"
        assert caught.value.fix == "use one of these: any_mount, hooks.sessions, runs.emit"
    assert stored() == before


@pytest.mark.parametrize("value", ["", "\n", 7, None, True, "false", "No", "0"])
def test_what_can_be_no_source(thread: eventq.Thread, stored: Stored, value: Any) -> None:
    """What can be no source of events is refused, and nothing changes."""
    thread.settings.set("runs.emit", "before")
    before = stored()
    with pytest.raises(InputError):
        thread.settings.set("runs.emit", value)
    assert (stored(), thread.settings.get("runs.emit")) == (before, "before")


def test_sources_that_must_be_addresses(path: str) -> None:
    """A thread that takes only addresses takes no other source here."""
    with eventq.open(path, strict_source=True) as thread:
        with pytest.raises(InputError, match="'me' is not a source address"):
            thread.settings.set("runs.emit", "me")
        thread.settings.set("runs.emit", "on")


def test_a_thread_that_is_only_read(path: str) -> None:
    """Settings are read there, and not changed."""
    with eventq.open(path, read_only=True) as reader:
        with pytest.raises(ReadOnlyError):
            reader.settings.set("runs.emit", "on")
        assert reader.settings.get("runs.emit") == "off"


def test_a_thread_of_the_original_tool(original: str) -> None:
    """A thread without a table of settings has the defaults, and settings once it is migrated."""
    with eventq.open(original, read_only=True) as reader:
        assert [*reader.settings] == [ANY, HOOKS, Setting("runs.emit", "off", "off")]
        with eventq.open(original) as thread:
            thread.settings.set("runs.emit", "me")
        assert reader.settings.get("runs.emit") == "me"


@pytest.mark.parametrize("way", ["copy", "pack"])
def test_neither_copies_nor_packs_carry_them(path: str, tmp_path: Path, way: str) -> None:
    """A run that came from elsewhere has no source, and the thread that it came to its settings."""
    with eventq.open(path) as thread, eventq.open(tmp_path / "other", create=True) as other:
        thread.settings.set("runs.emit", "theirs")
        thread.runs.start("w", "p", label="main", source="own")
        if way == "copy":
            thread.copy_to(other)
        else:
            thread.export_pack(tmp_path / "pack")
            other.import_pack(tmp_path / "pack")
        other.runs.get("main").step("a")
        assert (other.last_id(), other.settings.get("runs.emit")) == (0, "off")
        other.settings.set("runs.emit", "ours")
        other.runs.get("main").step("a")
        assert [event.source for event in other.peek()] == ["ours"]


@pytest.mark.engines("postgres")
def test_a_thread_in_a_database(thread: eventq.Thread) -> None:
    """A thread in PostgreSQL keeps settings as well."""
    thread.settings.set("runs.emit", "planner")
    with eventq.open(thread.path) as other:
        assert other.settings.get("runs.emit") == "planner"
