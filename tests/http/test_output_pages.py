"""The pages of output: kinds, lines and what failed, images, bytes, published documents and JSON."""

# ruff: noqa: F811 (the fixture `client` is imported)

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from eventq.http.pages import output_kinds, output_pages, version_changes
from tests.http.test_pages import EVIL, Text, client, seen  # noqa: F401 (client: a fixture)

if TYPE_CHECKING:
    import httpx

    import eventq
    from tests.http.conftest import Serve

AT = "/t/thread/output"
PUBLISHED = "/t/thread/published"
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x03\x20\0\0\x02\x58\x08\x02\0\0\0"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(1)</script></svg>"
DOCUMENT = """intro

# Beads **now**

A [link](https://example.com), a [bad one](javascript:alert(1)).

![far](https://evil.example/x.png)

```
# no heading
```

## How `it` works

- one
"""


def test_the_list_says_kinds_and_states(client: httpx.Client, thread: eventq.Thread) -> None:
    """By first bytes; what is written, what failed, what is whole; each output once."""
    thread.artifacts.put(b"a line\n", "make")
    thread.artifacts.put(PNG, "shot")
    thread.artifacts.put(b"\0\1\2", "weights")
    thread.artifacts.put(b"PK\x03\x04rest", "pack")
    with thread.artifacts.allocate("npm") as writer:
        writer.write(b"half")
        writer.fail("disk full")
    thread.outputs.put("notes", DOCUMENT)
    thread.outputs.publish("0-notes", "changed")
    thread.outputs.put("found", '{"n": 1}')
    thread.outputs.put("words", "just words")
    with thread.artifacts.allocate("slow"):
        page = seen(client, AT)
    for text in (
        "text 7 bytes", "image PNG 800 × 600", "binary 3 bytes", "binary ZIP", "failed: disk full",
        "sealed", "being written", "JSON 8 bytes", "text 10 bytes", "text 7 bytes",
    ):  # fmt: skip
        assert text in page.text
    links = [one for one in page.values("a", "href") if (one or "").startswith(PUBLISHED)]
    assert links == [
        f"{PUBLISHED}/0-notes?version=2",
        f"{PUBLISHED}/1-found",
        f"{PUBLISHED}/2-words",
    ]


def test_many_outputs_have_pages(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name; each comes once."""
    monkeypatch.setattr(output_pages, "LISTED", 3)
    for number in range(7):
        thread.outputs.put("x", f"{number}")
    found, at = [], AT
    while at:
        page = seen(client, at)
        found += [one for one in page.values("a", "href") if (one or "").startswith(PUBLISHED)]
        later = [one for one in page.values("a", "href") if "after=" in (one or "")]
        at = f"{AT}{later[0]}" if later else ""
    assert found == [f"{PUBLISHED}/{n}-x" for n in range(7)]


def test_lines_have_anchors_and_say_what_failed(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """A number leads to its line; failed ones are marked, and can be shown alone."""
    lines = [f"test_{n} {'FAILED' if n in (3, 600) else 'passed'}" for n in range(700)]
    thread.artifacts.put("\n".join(lines).encode(), "pytest")
    page = seen(client, f"{AT}/0")
    rows = [one for tag, one in page.tags if tag == "li" and (one.get("id") or "").startswith("L")]
    assert [rows[0]["id"], rows[-1]["id"]] == ["L1", "L500"]
    assert [one["id"] for one in rows if one.get("class") == "failed"] == ["L4"]
    assert "#L4" in page.values("a", "href")
    assert "1 to 500 of 700" in page.text
    failed = seen(client, f"{AT}/0?lines=failed")
    links = [one for one in failed.values("a", "href") if "#L" in (one or "")]
    assert links == ["?offset=4#L4", "?offset=601#L601"]
    assert "test_600 FAILED" in seen(client, f"{AT}/0?offset=601").text
    assert "No line." in seen(client, f"{AT}/0?text=nothing").text


@pytest.mark.parametrize(
    "line",
    [
        "x FAILED [ 20%]", "FAIL src/a.test.ts", "ERROR in ./a.js", "error: no such file",
        "error[E0308]: mismatched", "TypeError: x is not", "fatal: not a git repository",
        "Traceback (most recent call last):", "  ✗ it works", "panic: nil",
    ],
)  # fmt: skip
def test_a_line_that_says_that_something_failed(line: str) -> None:
    """In the words of compilers and tests."""
    assert output_kinds.is_failed(line)


@pytest.mark.parametrize(
    "line", ["0 failed, 3 passed", "failures are handled", "errors=0", "failsafe", "", "✓ works"]
)
def test_a_line_that_only_speaks_of_it(line: str) -> None:
    """Is not marked."""
    assert not output_kinds.is_failed(line)


def test_an_image_is_shown(client: httpx.Client, thread: eventq.Thread) -> None:
    """In an `img`, with a fixed type that nothing else is guessed from."""
    thread.artifacts.put(PNG, "shot")
    page = seen(client, f"{AT}/0")
    (source,) = page.values("img", "src")
    assert "PNG 800 × 600" in page.text
    found = client.get(source or "")
    assert found.headers["content-type"] == "image/png"
    assert found.headers["x-content-type-options"] == "nosniff"
    thread.outputs.put("shot", PNG)
    page = seen(client, f"{PUBLISHED}/0-shot")
    found = client.get(page.values("img", "src")[0] or "")
    assert found.headers["content-type"] == "image/png"


def test_bytes_are_said_to_be_none(client: httpx.Client, thread: eventq.Thread) -> None:
    """What they are, how many, their hash, and the first 96."""
    data = bytes(range(256)) * 2
    info = thread.artifacts.put(data, "weights")
    thread.outputs.put("weights", data)
    for at in (f"{AT}/0", f"{PUBLISHED}/0-weights"):
        page = seen(client, at)
        assert "These bytes are not text. 512 bytes, blake3" in page.text
        assert str(info.hash) in page.text
        assert "00000050  50 51 52 53 54 55 56 57  58 59 5a 5b 5c 5d 5e 5f\n" in page.text + "\n"
        assert "00000060" not in page.text
        assert not page.values("img", "src")


def test_an_svg_does_not_run(client: httpx.Client, thread: eventq.Thread) -> None:
    """It is text of an artifact; published, it is a download."""
    thread.artifacts.put(SVG, "draw")
    made = thread.outputs.put("draw", SVG)
    for at in (f"{AT}/0", f"{PUBLISHED}/0-draw"):
        page = seen(client, at)
        assert "onload='alert(1)'" in page.text
        assert not page.values("img", "src")
        assert len([tag for tag, _ in page.tags if tag == "script"]) == 1
    api = "/api/threads/thread"
    plain = client.get(f"{api}/artifacts/0/content")
    assert plain.headers["content-type"].startswith("text/plain")
    assert plain.headers["x-content-type-options"] == "nosniff"
    assert client.get(f"{api}/blobs/{made.hash}").headers["content-type"] == (
        "application/octet-stream"
    )


def test_a_document_is_shown_with_its_outline(client: httpx.Client, thread: eventq.Thread) -> None:
    """Headings lead to their parts; links lead to the web alone; nothing is fetched."""
    thread.outputs.put("notes", DOCUMENT)
    thread.outputs.publish("0-notes", "# Changed\n\ntext")
    page = seen(client, f"{PUBLISHED}/0-notes")
    assert [one.get("id") for tag, one in page.tags if tag in ("h2", "h3") and "id" in one] == [
        "part-1", "part-2"
    ]  # fmt: skip
    assert {"#part-1", "#part-2", "https://example.com"} <= {*page.values("a", "href")}
    assert "Beads now" in page.text
    assert "# no heading" in page.text
    assert "How it works" in page.text
    assert not page.values("img", "src")
    assert not [href for href in page.values("a", "href") if "javascript" in (href or "")]
    assert "version 1 of 2" in page.text
    assert f"{PUBLISHED}/0-notes?version=2" in page.values("a", "href")
    second = seen(client, f"{PUBLISHED}/0-notes?version=2")
    assert "Changed" in second.text
    source = seen(client, f"{PUBLISHED}/0-notes?as=source")
    assert "# Beads **now**" in source.text
    assert client.get(f"{PUBLISHED}/0-notes?version=3").status_code == 404
    assert client.get(f"{PUBLISHED}/none").status_code == 404


def test_json_and_text_are_shown(client: httpx.Client, thread: eventq.Thread) -> None:
    """JSON with indents and quiet keys, text as it is; very long ones in part; empty ones."""
    thread.outputs.put("found", json.dumps({"findings": [{"line": 3}]}))
    thread.outputs.put("words", "just\nwords")
    thread.outputs.put("none", "")
    thread.outputs.put("long", "x" * 300_000)
    thread.outputs.put("deep", "[" * 40_000 + "]" * 40_000)
    thread.outputs.put("wide", "[" * 900 + ",".join("1" * 40_000) + "]" * 900)
    page = seen(client, f"{PUBLISHED}/0-found")
    assert '{\n  "findings": [\n    {\n      "line": 3' in page.text
    assert page.values("span", "class").count("quiet") >= 2
    assert "just\nwords" in seen(client, f"{PUBLISHED}/1-words").text
    assert "It is empty" in seen(client, f"{PUBLISHED}/2-none").text
    assert "… 200,000 more bytes" in seen(client, f"{PUBLISHED}/3-long").text
    assert "[" * 40_000 in seen(client, f"{PUBLISHED}/4-deep").text
    assert len(seen(client, f"{PUBLISHED}/5-wide").text) < 500_000


def test_what_changed_is_shown(client: httpx.Client, thread: eventq.Thread) -> None:
    """By lines, with some around them; of JSON by members; the same is said to be so."""
    lines = [f"line {number}" for number in range(40)]
    thread.outputs.put("notes", "\n".join(lines))
    thread.outputs.publish("0-notes", "\n".join([*lines[:20], "another <b>", *lines[21:], "end"]))
    thread.outputs.publish("0-notes", "\n".join([*lines[:20], "another <b>", *lines[21:], "end"]))
    at = f"{PUBLISHED}/0-notes"
    assert "What changed" not in seen(client, at).text
    second = seen(client, f"{at}?version=2")
    assert "?version=2&as=changes" in second.values("a", "href")
    page = seen(client, f"{at}?version=2&as=changes")
    text = page.text
    assert "From version 1 to 2" in text
    assert "- line 20\n+ another <b>\n  line 21\n" in text
    assert "lines 18 to 24\n  line 17\n" in text
    assert "line 16" not in text
    assert "+ end\n" in text
    assert "no line changed" in seen(client, f"{at}?version=3&as=changes").text
    thread.outputs.put("found", '{"a": 1, "b": [2]}')
    thread.outputs.publish("1-found", '{"a": 1, "b": [3]}')
    text = seen(client, f"{PUBLISHED}/1-found?version=2&as=changes").text
    assert '  "a": 1,\n' in text
    assert "-     2\n+     3\n" in text


def test_what_is_long_or_no_text_is_compared_as_far_as_that_goes(
    client: httpx.Client, thread: eventq.Thread
) -> None:
    """And the page says so; with the first version there is nothing to compare."""
    long = [f"{number:030}" for number in range(5_000)]
    thread.outputs.put("long", "\n".join(long))
    thread.outputs.publish("0-long", "\n".join([*long, "more"]))
    thread.outputs.publish("0-long", "\n".join(reversed(long)))
    page = seen(client, f"{PUBLISHED}/0-long?version=2&as=changes")
    assert "no line changed, as far as they are compared" in page.text
    page = seen(client, f"{PUBLISHED}/0-long?version=3&as=changes")
    assert "the first changes, there may be more" in page.text
    assert page.text.count("\n") < 1_200
    thread.outputs.put("x", PNG)
    thread.outputs.publish("1-x", "text")
    assert "one of them is not text" in seen(client, f"{PUBLISHED}/1-x?version=2&as=changes").text
    assert long[0] in seen(client, f"{PUBLISHED}/0-long?as=changes").text


def test_no_text_takes_long_to_compare(
    client: httpx.Client, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not looked at when the time is up counts as changed."""
    thread.outputs.put("x", "a\nb\nc")
    thread.outputs.publish("0-x", "a\nc")
    monkeypatch.setattr(version_changes, "SECONDS", -1)
    text = seen(client, f"{PUBLISHED}/0-x?version=2&as=changes").text
    assert "- a\n- b\n- c\n+ a\n+ c\n" in text
    assert "there may be more" in text


def erase(thread: eventq.Thread, name: str) -> None:
    """Erase what the first version of an output holds."""
    context = thread.contexts.create("gone")
    turn = context.append("a\r\nb")
    assert turn.hash == thread.outputs.get(name).hash
    thread.erasures.turn(turn.turn_id, everywhere=True)


def test_how_lines_end_is_compared(client: httpx.Client, thread: eventq.Thread) -> None:
    """But for the last one; nothing is made up of a text that is empty, or one that was erased."""
    for number, (old, new, shown) in enumerate((
        ("a\nb", "a\nb\n", "no line changed"),
        ("", "x", "line 1\n+ x\n"),
        ("a\r\nb", "a\nb", "- a␍\n+ a\n  b\n"),
        ('{"a": 1}', '{ "a": 1 }', "no line changed"),
    )):  # fmt: skip
        thread.outputs.put("x", old)
        thread.outputs.publish(f"{number}-x", new)
        text = seen(client, f"{PUBLISHED}/{number}-x?version=2&as=changes").text
        assert shown in text, (old, new)
        assert "- \n" not in text
    erase(thread, "2-x")
    page = seen(client, f"{PUBLISHED}/2-x?version=2&as=changes")
    assert "one of them is not text, or was erased" in page.text


def test_those_of_a_session(client: httpx.Client, thread: eventq.Thread) -> None:
    """Are named by it in all links."""
    thread.contexts.create("s &?")
    scope = thread.scope("s &?")
    scope.outputs.put("notes", "# One\n\n# Two")
    scope.artifacts.put(PNG, "shot")
    query = "?context=s+%26%3F"
    page = seen(client, f"{AT}{query}")
    assert f"{PUBLISHED}/0-notes{query}" in page.values("a", "href")
    shown = seen(client, f"{PUBLISHED}/0-notes{query}")
    assert "of session s &?" in shown.text
    assert f"{query}&as=source" in shown.values("a", "href")
    image = seen(client, f"{AT}/0{query}").values("img", "src")[0]
    assert client.get(image or "").status_code == 200


def test_nothing_becomes_markup(client: httpx.Client, thread: eventq.Thread) -> None:
    """Whatever is printed or published, in whatever kind it is shown."""
    thread.artifacts.put(f"FAILED {EVIL}\n\x1b[31m{EVIL}".encode())
    for number, text in enumerate((f"# {EVIL}\n\n{EVIL}", json.dumps({EVIL: EVIL}), EVIL)):
        thread.outputs.put("x", text)
        thread.outputs.publish(f"{number}-x", f"{text} {EVIL}")
        for query in ("", "?as=source", "?version=2&as=changes"):
            page = seen(client, f"{PUBLISHED}/{number}-x{query}")
            assert "alert(1)" in page.text
            assert not [tag for tag, _ in page.tags if tag == "img"]
            assert len([tag for tag, _ in page.tags if tag == "script"]) == 1
    for query in ("", "?lines=failed", "?text=alert"):
        page = seen(client, f"{AT}/0{query}")
        assert "alert(1)" in page.text
        assert not [tag for tag, _ in page.tags if tag == "img"]


def test_a_guest_reads_them(serve: Serve, path: str, thread: eventq.Thread) -> None:
    """On this machine, without a token; there is nothing to change."""
    thread.outputs.put("notes", DOCUMENT)
    with thread.artifacts.allocate("npm") as writer:
        writer.fail("no room in /secret")
    guest = serve(path)
    assert "no room in /secret" in seen(guest, AT).text
    del guest.headers["authorization"]
    for at in (AT, f"{AT}/0", f"{PUBLISHED}/0-notes"):
        page = seen(guest, at)
        assert "post" not in page.values("form", "method")
        assert "/secret" not in page.text


def test_who_cannot_come_in_is_told_how(serve: Serve, path: str) -> None:
    """By a token or a link; what is wrong is said with what helps, and the way back."""
    client = serve(path)
    page = seen(client, "/login")
    assert "eventq ui prints a link" in page.text
    assert page.values("input", "type") == ["password"]
    found = client.get(f"{AT}/77")
    assert found.status_code == 404
    page = Text(found.text)
    assert "alert" in page.values("p", "role")
    assert page.values("span", "class").count("next") == 1
    assert "/" in page.values("a", "href")
