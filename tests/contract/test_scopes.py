"""Each root context numbers what is produced in it, its forks share that, the thread is scope 0."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import apsw
import pytest

import eventq
from eventq.errors import LogicError, UnknownArtifactError, UnknownContextError
from eventq.output import folders
from eventq.records.turn import NewTurn
from eventq.store.output_rows import FileRow
from tests.contract.support import ask
from tests.engines import sqlite
from tests.servers import ENGINES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.engines(*ENGINES),
    pytest.mark.into("sqlite", soaked=["postgres"]),
]

ODD = "a b/ü?&#%"


def put(thread: eventq.Thread, context: int | str, data: bytes) -> str:
    """Store an artifact of a context and return its number."""
    return thread.scope(context).artifacts.put(data).artifact_id


def lines(pack: Path) -> list[dict[str, Any]]:
    """Return the lines of a pack beside those of the interchange format."""
    return [json.loads(line) for line in (pack / "eventq.ndjson").read_bytes().splitlines()]


def rewrite(pack: Path, changed: list[dict[str, Any]]) -> None:
    """Write the lines of a pack anew."""
    text = "".join(json.dumps(line) + "\n" for line in changed)
    (pack / "eventq.ndjson").write_text(text)


def test_numbers_count_per_root_context(thread: eventq.Thread) -> None:
    """Two root contexts and the thread each begin at 0; forks and their forks go on counting."""
    one = thread.contexts.create("one")
    one.append("x")
    fork = one.fork(name="fork")
    deep = fork.fork(name="deep")
    thread.contexts.create("two")
    assert thread.artifacts.put(b"thread").url == "artifact://0"
    assert [put(thread, "one", b"1"), put(thread, fork.id, b"2"), put(thread, "deep", b"3")] == [
        "0", "1", "2",
    ]  # fmt: skip
    assert put(thread, "two", b"4") == "0"
    assert thread.scope("one").outputs.put("A", "a").output_id == "0-A"
    assert thread.scope("deep").outputs.put("A", "b").output_id == "1-A"
    assert thread.scope("two").outputs.put("A", "c").output_id == "0-A"
    assert thread.outputs.put("A", "d").output_id == "0-A"
    assert thread.scope(deep.id).scope == one.id
    assert thread.produced.scope == 0


def test_a_url_is_read_where_it_is_cited(thread: eventq.Thread) -> None:
    """A context, a session in the URL, or neither: each names the artifact of its scope."""
    one = thread.contexts.create("one")
    thread.contexts.create("two")
    thread.artifacts.put(b"thread")
    put(thread, "one", b"first")
    put(thread, "two", b"second")
    thread.scope("one").outputs.put("A", '{"b": 7}')
    assert thread.read("artifact://0").data == b"thread"
    assert thread.read("artifact://0", context="one").data == b"first"
    assert b"".join(thread.open_url("artifact://0", context=one.id)) == b"first"
    assert thread.read("artifact://0?session=two", context="one").data == b"second"
    assert thread.read(f"artifact://0?session={one.id}").data == b"first"
    assert thread.read("agent://0-A?session=one").data == b'{"b": 7}'
    assert b"7" in thread.read("agent://0-A?q=.b&session=one").data
    assert b"7" in thread.read("agent://0-A/b?session=one").data


def test_the_address_of_a_version_of_an_output(thread: eventq.Thread) -> None:
    """Version and session are both in the address, which reads that version."""
    thread.contexts.create(ODD)
    produced = thread.scope(ODD)
    first = produced.outputs.put("A", "1")
    second = produced.outputs.publish("0-A", "2")
    assert second.url == f"agent://0-A?version=2&session={quote(ODD)}"
    assert (thread.read(first.url).data, thread.read(second.url).data) == (b"1", b"2")


@pytest.mark.parametrize("name", [ODD, "+", "ü", "a=b", "%41"])
def test_names_are_quoted_in_addresses(name: str, thread: eventq.Thread) -> None:
    """The address of an artifact reads it wherever it is cited, whatever the name."""
    thread.contexts.create(name)
    made = thread.scope(name).artifacts.put(b"x")
    assert thread.read(made.url).data == b"x"
    assert made.session == name


def test_scopes_outlive_their_contexts(thread: eventq.Thread) -> None:
    """What was produced is read by name and number later; the same name again goes on counting."""
    one = thread.contexts.create("one")
    put(thread, "one", b"first")
    thread.scope("one").outputs.put("A", "a")
    thread.contexts.delete("one")
    for session in ("one", one.id):
        assert thread.read(f"artifact://0?session={session}").data == b"first"
    assert thread.scope("one").artifacts.get(0).url == "artifact://0?session=one"
    again = thread.contexts.create("one")
    assert again.id != one.id
    assert put(thread, "one", b"next") == "1"
    assert thread.scope(again.id).outputs.put("A", "b").output_id == "1-A"
    assert thread.read("artifact://0", context="one").data == b"first"


def test_a_fork_with_the_name_of_a_scope_that_survived(thread: eventq.Thread) -> None:
    """The fork shares its origin's numbers; in a URL the name is still that of the scope."""
    thread.contexts.create("one")
    put(thread, "one", b"first")
    thread.contexts.delete("one")
    root = thread.contexts.create("root")
    put(thread, "root", b"of root")
    root.fork(name="one")
    assert thread.read("artifact://0", context="one").data == b"of root"
    assert thread.read("artifact://0?session=one").data == b"first"


def test_a_session_that_is_unknown(thread: eventq.Thread) -> None:
    """The errors name the session or the artifact, and say what to do."""
    thread.contexts.create("one")
    for url in ("artifact://0?session=nobody", "agent://A?session=999", "agent://A?session="):
        with pytest.raises(UnknownContextError):
            thread.read(url)
    with pytest.raises(LogicError, match="'one'") as nothing:
        thread.read("artifact://0?session=one")
    assert "--context one" in str(nothing.value)
    put(thread, "one", b"x")
    with pytest.raises(UnknownArtifactError):
        thread.read("artifact://7?session=one")


def test_a_captured_command_is_numbered_in_its_context(thread: eventq.Thread) -> None:
    """What a view leaves out is an artifact of the context, and the view has its address."""
    thread.contexts.create("one")
    thread.artifacts.put(b"thread")
    _, made = thread.capture(["seq", "200000"], context="one")
    assert made.url == "artifact://0?session=one"
    assert thread.read(made.url).data.startswith(b"1\n2\n")
    assert len(thread.artifacts) == 1


def test_collecting_keeps_what_scopes_without_contexts_hold(thread: eventq.Thread) -> None:
    """Blobs of outputs and files stay, and say what holds them, after their context is gone."""
    thread.contexts.create("one")
    produced = thread.scope("one")
    output = produced.outputs.put("A", b"an output" * 99)
    file = thread.blobs.put(b"a file" * 99)
    thread.database.memory.scopes.put_file(
        produced.scope, FileRow("notes/plan.txt", digest=bytes.fromhex(file.hash))
    )
    loose = thread.blobs.put(b"loose" * 99)
    thread.contexts.delete("one")
    thread.gc(apply=True, grace=0)
    assert thread.read(output.url).data == b"an output" * 99
    assert thread.blobs.has(bytes.fromhex(file.hash))
    assert not thread.blobs.has(bytes.fromhex(loose.hash))
    assert "notes/plan.txt" in str(thread.blobs.holders(file.ref))
    assert "0-A" in str(thread.blobs.holders(f"blob:blake3:{output.hash}"))


FAULTS = {
    "artifacts": ("DELETE FROM scopes", "has artifacts, but no row"),
    "outputs": ("DELETE FROM scopes", "has outputs, but no row"),
    "number": (
        "INSERT INTO files (scope_id, path, number) VALUES (1, '9.x.log', 9)",
        "is artifact 9, which is not there",
    ),
    "version": (
        "INSERT INTO files (scope_id, path, output, version) VALUES (1, 'x.md', 'x', 3)",
        "is version 3 of output x, which is not there",
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_check_finds_what_scopes_lack(kind: str, path: str, raw: apsw.Connection) -> None:
    """Each planted fault has a sentence of its own; without one a check finds nothing."""
    sql, found = FAULTS[kind]
    with eventq.open(path) as thread:
        thread.contexts.create("one")
        put(thread, "one", b"x")
        thread.scope("one").outputs.put("A", "a")
        assert thread.check() == []
    raw.execute(sql)
    with eventq.open(path) as thread:
        assert any(found in fault for fault in thread.check())


def source_and_other(tmp_path: Path) -> tuple[eventq.Thread, eventq.Thread]:
    """Return a thread with a root, a fork and things of both, and a thread where ids are taken."""
    source = eventq.open(tmp_path / "source", create=True)
    root = source.contexts.create("one")
    root.append(NewTurn("hello", "text"))
    root.fork(name="fork")
    put(source, "one", b"first")
    put(source, "fork", b"second")
    source.scope("one").outputs.put("A", "a")
    other = eventq.open(tmp_path / "other", create=True)
    for name in ("one", "x"):
        other.contexts.create(name)
        put(other, name, b"of the other")
    return source, other


@pytest.mark.parametrize("by_pack", [False, True])
def test_scopes_come_whole_and_once(by_pack: bool, tmp_path: Path) -> None:
    """A copy has all of its source's scope beside those that have its id and name; once."""
    source, other = source_and_other(tmp_path)
    with source, other:
        source.export_pack(tmp_path / "pack")
        for times in range(2):
            made = other.import_pack(tmp_path / "pack") if by_pack else source.copy_to(other)
            assert (made.artifacts, made.outputs) == ((2, 1) if times == 0 else (0, 0))
        fork = other.scope("fork")
        assert [fork.artifacts.open(n).read() for n in (0, 1)] == [b"first", b"second"]
        assert fork.outputs.read("0-A") == b"a"
        assert other.read("artifact://0", context="one").data == b"of the other"
        assert put(other, "fork", b"third") == "2"
        assert other.check() == []


def test_a_fork_brings_its_scope(tmp_path: Path) -> None:
    """A fork that is chosen alone comes with all that its root and its forks produced."""
    source, other = source_and_other(tmp_path)
    with source, other:
        source.contexts.create("left out")
        put(source, "left out", b"not asked for")
        source.copy_to(other, ["fork"])
        assert other.read("artifact://0", context="fork").data == b"first"
        assert other.read("artifact://1", context="fork").data == b"second"
        assert len([*other.produced.all_scopes()]) == 4
        assert other.check() == []


def test_a_scope_without_context_is_copied(tmp_path: Path) -> None:
    """A whole copy has what deleted contexts produced, by its name."""
    with (
        eventq.open(tmp_path / "a", create=True) as source,
        eventq.open(tmp_path / "b", create=True) as other,
    ):
        source.contexts.create(ODD)
        url = source.scope(ODD).artifacts.put(b"kept").url
        source.contexts.delete(ODD)
        source.copy_to(other)
        assert source.copy_to(other).artifacts == 0
        assert other.read(url).data == b"kept"
        other.contexts.create(ODD)
        assert put(other, ODD, b"next") == "1"


def test_a_cited_session_comes_along(tmp_path: Path) -> None:
    """A text that names another session's artifact and output brings both."""
    with (
        eventq.open(tmp_path / "a", create=True) as source,
        eventq.open(tmp_path / "b", create=True) as other,
    ):
        source.contexts.create(ODD)
        artifact = source.scope(ODD).artifacts.put(b"cited").url
        output = source.scope(ODD).outputs.put("A", "cited too").url
        source.contexts.create("main").append(f"see {artifact} and {output}.")
        source.copy_to(other, ["main"])
        assert other.read(artifact).data == b"cited"
        assert other.read(output).data == b"cited too"


def test_a_pack_of_before_is_of_the_thread(tmp_path: Path) -> None:
    """Lines without a scope are what the thread itself produced."""
    with (
        eventq.open(tmp_path / "a", create=True) as source,
        eventq.open(tmp_path / "b", create=True) as other,
    ):
        source.artifacts.put(b"x")
        source.outputs.put("A", "a")
        source.export_pack(tmp_path / "pack")
        for line in (found := lines(tmp_path / "pack")):
            line.pop("scope", None)
        rewrite(tmp_path / "pack", found)
        other.import_pack(tmp_path / "pack")
        assert other.read("artifact://0").data == b"x"
        assert other.read("agent://0-A").data == b"a"


@pytest.mark.parametrize("scope", ["x", -1, 2**70, [], None, 1.5, True, {}])
def test_a_hostile_scope(scope: Any, tmp_path: Path) -> None:
    """An impossible scope loses no more than its own lines, and the import ends sound."""
    source, other = source_and_other(tmp_path)
    with source, other:
        source.export_pack(tmp_path / "pack")
        found = lines(tmp_path / "pack")
        for line in found:
            if "scope" in line:
                line["scope"] = scope
        rewrite(tmp_path / "pack", found)
        made = other.import_pack(tmp_path / "pack")
        assert made.notes
        assert other.read("artifact://0", context="one").data == b"of the other"
        assert other.check() == []


@pytest.mark.parametrize(
    "file",
    ["../x", "/etc/x", "a\0b", "a/../b", "", ".", "a//b", "x" * 256, "y/" * 600 + "y", "\ud800"],
)
def test_a_hostile_file(file: str, tmp_path: Path) -> None:
    """A path that leads out of its folder is left out with a note."""
    source, other = source_and_other(tmp_path)
    with source, other:
        source.export_pack(tmp_path / "pack")
        scope = source.scope("one").scope
        found = lines(tmp_path / "pack")
        bad = [{"file": file, "scope": scope, "number": 0},
               {"file": "ok.log", "scope": scope, "number": 77}]  # fmt: skip
        rewrite(tmp_path / "pack", [*found, *bad])
        made = other.import_pack(tmp_path / "pack")
        assert "2 lines left out" in str(made.notes)
        assert other.database.memory.scopes.files(other.scope("fork").scope, "", 9) == []
        assert other.check() == []


def test_the_row_of_a_scope_comes_with_its_first_thing(path: str, raw: apsw.Connection) -> None:
    """A context that produced nothing has no row."""
    with eventq.open(path) as thread:
        thread.contexts.create("one")
        assert ask(raw, "SELECT * FROM scopes") == []
        put(thread, "one", b"x")
        assert [row[1] for row in ask(raw, "SELECT * FROM scopes")] == ["one"]


def test_a_pack_whose_paths_exclude_each_other(tmp_path: Path) -> None:
    """Of a file and a path below it the last one stays, and what came can be written."""
    source, other = source_and_other(tmp_path)
    with source, other:
        scope, blob = source.scope("one").scope, source.blobs.put(b"x").hash
        source.export_pack(tmp_path / "again")
        names = [{"file": file, "scope": scope, "blob": blob} for file in ("a", "a/b", "a/b/c")]
        rewrite(tmp_path / "again", [*lines(tmp_path / "again"), *names])
        other.import_pack(tmp_path / "again")
        found = other.database.memory.scopes.files(other.scope("fork").scope, "", 9)
        assert [one.path for one in found] == ["a/b/c"]
        folder = tmp_path / "out"
        folder.mkdir()
        assert folders.write(other.scope("fork"), str(folder), print)["files"] == 1


def test_scopes_of_one_moment_are_told_apart(tmp_path: Path) -> None:
    """A scope of another name is another one, though it began in the same millisecond."""
    source, other = source_and_other(tmp_path)
    with source, other:
        at = source.contexts.get("one").info().created_at_ms
        made = other.contexts.create("stranger")
        sqlite(other.database).run("UPDATE contexts SET created_at_ms = ?", (at,))
        other.scope("stranger").artifacts.put(b"mine")
        source.copy_to(other)
        assert [one.url for one in other.scope(made.id).artifacts] == [
            "artifact://0?session=stranger"
        ]
        before = [len(one.artifacts) for one in other.produced.all_scopes()]
        source.copy_to(other)
        assert [len(one.artifacts) for one in other.produced.all_scopes()] == before
        assert other.check() == []


def test_the_name_of_a_session_leads_to_what_outlived_it(thread: eventq.Thread) -> None:
    """What a deleted context produced is read, listed and added to under its name."""
    thread.contexts.create("main")
    put(thread, "main", b"kept")
    thread.contexts.delete("main")
    assert thread.read("artifact://0", context="main").data == b"kept"
    assert put(thread, "main", b"next") == "1"
    assert thread.scope(None) is thread.produced
    with pytest.raises(UnknownContextError):
        thread.scope("never")
