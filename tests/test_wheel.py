"""The distributions as they are installed: all that is needed is in them, and nothing of the tree.

The kind: a file or a field that is right in a clone and wrong elsewhere. Something that the sdist
lacks to build from, or the wheel to run; a path that installers write differently; a link of
README.md that is relative to the repository, in any of Markdown's and HTML's ways to write one; a
script that names the builder's Python.
"""

from __future__ import annotations

import email
import os
import posixpath
import re
import subprocess
import sys
import tarfile
import zipfile
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import HTTPCookieProcessor, build_opener

import pytest
from markdown_it import MarkdownIt

import eventq

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).parent.parent
BASE = "https://forge.example/owner/eventq"
SAMPLE = """\
# Sample

[![A build](docs/b.png)](docs/b.md "title"), [over
two lines](USAGE.md#a), [`code`](docs/a.md), [`a[0]`](x.md), [here](#sample), <b>bold</b>,
[away](https://a.example/x), [mail](mailto:a@b.example), ![](docs/c.png), `[kept](as.md)`,
``a ` [kept](as.md)``.

<picture><source media="(dark)" srcset="docs/dark.svg"><img alt="A drawing" src="docs/light.svg"></picture>
<a href="SPEC.md">spec</a> <a href="https://a.example">away</a>

```sh
[kept](as.md)  # ![kept](as.png)
[kept]: as.md
```

```mermaid
flowchart LR
    a --> b
```
"""


def build(tree: Path, target: str, to: Path, **variables: str) -> Path:
    """Build an sdist or a wheel of a tree, and return it."""
    given = {name: value for name, value in os.environ.items() if name != "EVENTQ_BASE_URL"}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(to)],
        cwd=tree, env={**given, **variables}, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (made,) = to.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an sdist as a release does, and return where it is unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(ROOT, "sdist", folder, EVENTQ_BASE_URL=f"{BASE}/")) as archive:
        archive.extractall(folder, filter="data")
    return folder / f"eventq-{eventq.__version__}"


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from the sdist, as an installer does that gets no wheel."""
    return build(sdist, "wheel", tmp_path_factory.mktemp("wheel"))


def text_of(told: Message) -> str:
    """Return the description in metadata."""
    payload = told.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode()


def metadata(wheel: Path) -> Message:
    """Return the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_has_what_it_needs(wheel: Path) -> None:
    """It has migrations, skill, types, scripts and license, nothing of the tree, and plain paths."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (record,) = (name for name in names if name.endswith("/RECORD"))
        recorded = [line.rsplit(",", 2)[0] for line in archive.read(record).decode().splitlines()]
    assert sorted(recorded) == sorted(names)
    assert [name for name in names if name != posixpath.normpath(name)] == []
    info = f"eventq-{eventq.__version__}"
    assert {name.partition("/")[0] for name in names} == {
        "eventq", f"{info}.data", f"{info}.dist-info",
    }  # fmt: skip
    assert {
        "eventq/py.typed",
        "eventq/migrations/sqlite/0001_thread.sql",
        "eventq/skill/eventq/SKILL.md",
        f"{info}.dist-info/licenses/LICENSE",
    } <= set(names)
    assert {name for name in names if ".data/" in name} == {
        f"{info}.data/scripts/eventq", f"{info}.data/scripts/thread",
    }  # fmt: skip


def test_the_wheel_works_when_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, its commands and its library run, and serve a thread."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True
    )
    python = tmp_path / "env/bin/python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index",
         "--quiet", str(wheel)],
        check=True, timeout=300,
    )  # fmt: skip
    (site,) = (tmp_path / "env/lib").glob("python*/site-packages")
    # The dependencies are those of this environment; its own eventq stands behind the one installed.
    (site / "dependencies.pth").write_text("\n".join(p for p in sys.path if "site-packages" in p))

    def run(*words: str) -> str:
        done = subprocess.run(
            [str(python.with_name(words[0])), *words[1:]], cwd=tmp_path, env=bare,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), words
        return done.stdout

    bare = {"PATH": os.defpath, "HOME": str(tmp_path), "EVENTQ_NOTIFIER": "none"}
    where = "import eventq.store.migrations as m; print(m.__file__, m.folder('sqlite'))"
    assert all(path.startswith(str(site)) for path in run("python", "-c", where).split())
    assert run("eventq", "--version") == f"eventq {eventq.__version__}\n"
    run("eventq", "init", "inbox")
    note = ["--source", "self", "--type", "note", "--content", "x"]
    run("thread", "push", "--thread", "inbox", *note)
    assert run("eventq", "check", "--thread", "inbox") == "ok\n"
    assert "Nobody needs you" in run("eventq", "top", "--thread", "inbox")
    words = ["ui", "--thread", "inbox", "--http", "127.0.0.1:0", "--no-browser"]
    with subprocess.Popen(
        [str(python.with_name("eventq")), *words], cwd=tmp_path, env=bare, stdout=subprocess.PIPE, text=True
    ) as server:  # fmt: skip
        try:
            assert server.stdout
            with build_opener(HTTPCookieProcessor).open(
                server.stdout.readline().strip(), timeout=60
            ) as page:
                assert "Nobody needs you" in page.read().decode()
        finally:
            server.terminate()
    assert server.returncode == 0


def test_what_an_index_shows(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    """License, authors and Pythons are stated; URLs are those that the release names, or none."""
    told = metadata(wheel)
    assert (told["License-Expression"], told["License-File"]) == ("MIT", "LICENSE")
    assert told["Author"] == "The eventq authors"
    assert [one for one in told.get_all("Classifier", []) if "License" in one] == []
    assert told["Description-Content-Type"] == "text/markdown"
    urls = [url.partition(", ")[2] for url in told.get_all("Project-URL", [])]
    assert len(urls) >= 4
    assert all(url.startswith(BASE) and "//" not in url[len("https://") :] for url in urls)
    assert text_of(email.message_from_bytes((sdist / "PKG-INFO").read_bytes())) == text_of(told)
    nowhere = metadata(build(ROOT, "wheel", tmp_path))
    assert nowhere.get_all("Project-URL") is None
    assert set(told.get_all("Provides-Extra", [])) == {"mcp", "postgres"}
    assert relative(text_of(nowhere)) == relative(text_of(told)) == []


# --- links ----------------------------------------------------------------------------------------


class References(HTMLParser):
    """Every reference of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("href", "src", "srcset")]


def references(text: str) -> list[str]:
    """Return what a Markdown document refers to, in Markdown and in HTML."""
    page = References()
    page.feed(MarkdownIt("commonmark", {"html": True}).render(text))
    return page.found


def relative(text: str) -> list[str]:
    """Return the references that lead nowhere outside of the repository."""
    return [one for one in references(text) if not re.match("https?:|mailto:", one)]


def description(text: str, base: str) -> str:
    """Return what the hook makes of a document."""
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec
    assert spec.loader
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    made: str = module.description(text, base, "v1.2")
    return made


def test_links_lead_to_the_files_of_the_tag() -> None:
    """Links of every form become absolute, images lead to their bytes, and code stays."""
    made = description(SAMPLE, BASE)
    assert len(relative(SAMPLE)) == 10
    assert references(made) == [
        f"{BASE}/blob/v1.2/docs/b.md", f"{BASE}/raw/v1.2/docs/b.png", f"{BASE}/blob/v1.2/USAGE.md#a",
        f"{BASE}/blob/v1.2/docs/a.md", f"{BASE}/blob/v1.2/x.md", f"{BASE}/blob/v1.2/README.md#sample",
        "https://a.example/x", "mailto:a@b.example", f"{BASE}/raw/v1.2/docs/c.png",
        f"{BASE}/raw/v1.2/docs/dark.svg", f"{BASE}/raw/v1.2/docs/light.svg", f"{BASE}/blob/v1.2/SPEC.md",
        "https://a.example",
    ]  # fmt: skip
    assert made.count("[kept](as.md)") == 3
    assert "mermaid" not in made
    assert '"title"' in made


def test_without_an_address_links_are_text() -> None:
    """Each is its text, an image what stands in its place, and links to elsewhere stay."""
    made = description(SAMPLE, "")
    assert references(made) == ["https://a.example/x", "mailto:a@b.example", "https://a.example"]
    assert "A build, over\ntwo lines, `code`, `a[0]`, here, <b>bold</b>,\n" in made
    assert "A drawing</picture>\n<a >spec</a>" in made
    assert made.count("[kept](as.md)") == 3


def test_a_link_that_stays_relative_is_refused() -> None:
    """A link that is defined apart from its text ends the build, with what to do."""
    with pytest.raises(
        ValueError, match=r"write the link of '  \[a\]: b.md' where its text stands"
    ):
        description("See [a].\n\n  [a]: b.md\n", BASE)
