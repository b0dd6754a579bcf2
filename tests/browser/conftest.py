"""A real browser, and the server that it looks at."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from tests.http.conftest import Running, path, serve  # noqa: F401 (fixtures)
from tests.running import unmarked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return the browser; with the libraries of its package where the system has none."""
    from playwright.sync_api import sync_playwright

    program = HERE / ".browser" / "chromium"
    needs = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    more = {"LD_LIBRARY_PATH": str(HERE / ".browser" / "libraries" / "lib")}
    with ExitStack() as stack:
        with unmarked():  # tests of other files may come between those that use it
            playwright = stack.enter_context(sync_playwright())
            found = playwright.chromium.launch(
                executable_path=program, chromium_sandbox=False,
                args=["--disable-quic", "--disable-gpu"],
                env={**os.environ, **more} if "not found" in needs else None,
            )  # fmt: skip
        yield found
        found.close()


@pytest.fixture
def site(serve: Callable[..., Any], path: str) -> Running:  # noqa: F811
    """Return a server of one thread."""
    found: Running = serve(path).running
    return found


@pytest.fixture
def thread(path: str) -> Iterator[eventq.Thread]:  # noqa: F811
    """Return the same thread."""
    with eventq.open(path) as thread:
        yield thread


class Tab:
    """A page of the browser, and what its console said."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.problems: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._note)

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def show(self, at: str) -> Any:
        """Go to a view of the thread, and return the page."""
        self.page.goto(f"{self.url}/t/thread/{at}")
        return self.page

    def faults(self) -> list[tuple[str, str]]:
        """Return what is hard to use for some: rules that are broken seriously."""
        source = (HERE / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
        self.page.evaluate(source)
        found = self.page.evaluate(
            "axe.run().then(r => r.violations.map(v =>"
            " [v.id, v.impact, v.nodes.map(n => n.html).slice(0, 3).join(' ')]))"
        )
        return [one for one in found if one[1] in ("serious", "critical")]


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> str:
    """Return each theme."""
    return str(request.param)


@pytest.fixture
def tab(browser: Any, site: Running) -> Iterator[Tab]:
    """Return a page that came in through a link; its console must have said nothing."""
    with opened(browser, site) as tab:
        yield tab


def opened(browser: Any, running: Running, **options: Any) -> Any:
    """Return a context manager of a page that came in through a link of a running server."""
    from contextlib import contextmanager

    @contextmanager
    def use() -> Iterator[Tab]:
        context = browser.new_context(reduced_motion="reduce", **options)
        context.set_default_timeout(60_000)
        tab = Tab(context.new_page(), running.url)
        tab.page.goto(running.url + running.server.link())
        yield tab
        context.close()
        assert tab.problems == []

    return use()
