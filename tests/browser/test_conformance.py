"""The official conformance runner of MCP, against the server of a thread over HTTP.

Its scenarios ask for tools and resources with names of their own: those that stand for what eventq
has are added to a real server here. What eventq has not stands in `NOT_HERE`, with the reason.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from eventq.mcp import mounting
from eventq.mcp.thread_server import ThreadServer

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

pytestmark = pytest.mark.browser  # as it needs the packages of Node, and a newer Node

RUNNER = Path(__file__).parent / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
SUITES = {
    "2026-07-28": ["--requirements", "2026-07-28"],
    "2025-11-25": ["--suite", "all", "--spec-version", "2025-11-25"],
}
_TEXT = "its tools return text: nothing else goes into an event, a turn or a line of output"
_PROMPTS = "it has no prompts: what to do with a thread is for the agent's own instructions"
_ASKS = (
    "it asks nothing of a client: a question is an event, which outlasts the call and the client"
)
_TASKS = "an extension that the SDK does not support"
NOT_HERE = {
    "tools-call-image": _TEXT,
    "tools-call-audio": _TEXT,
    "tools-call-embedded-resource": _TEXT,
    "tools-call-mixed-content": _TEXT,
    "resources-read-binary": _TEXT,
    "prompts-list": _PROMPTS,
    "prompts-get-simple": _PROMPTS,
    "prompts-get-with-args": _PROMPTS,
    "prompts-get-embedded-resource": _PROMPTS,
    "prompts-get-with-image": _PROMPTS,
    "completion-complete": "it completes no arguments: names are in `status` and in the resources",
    "tools-call-with-progress": "no call has steps that a client could count",
    "tools-call-with-logging": "its log is the thread's, which a person reads",
    "logging-set-level": "its log is the thread's, which a person reads",
    "tools-call-sampling": _ASKS,
    "tools-call-elicitation": _ASKS,
    "elicitation-sep1034-defaults": _ASKS,
    "elicitation-sep1330-enums": _ASKS,
    "input-required-result-basic-elicitation": _ASKS,
    "input-required-result-basic-sampling": _ASKS,
    "input-required-result-basic-list-roots": _ASKS,
    "input-required-result-request-state": _ASKS,
    "input-required-result-multiple-input-requests": _ASKS,
    "input-required-result-multi-round": _ASKS,
    "input-required-result-non-tool-request": _ASKS,
    "input-required-result-result-type": _ASKS,
    "input-required-result-tampered-state": _ASKS,
    "input-required-result-capability-check": _ASKS,
    "input-required-result-ignore-extra-params": _ASKS,
    "input-required-result-missing-input-response": _ASKS,
    "server-sse-polling": "no stream is resumed: a call that lost its reply is repeated with its key",
    "json-schema-2020-12": "no argument of a tool needs more of JSON Schema than a type and bounds",
    "http-custom-header-server-validation": "no tool takes an argument from a header",
    "tasks-lifecycle": _TASKS,
    "tasks-capability-negotiation": _TASKS,
    "tasks-wire-fields": _TASKS,
    "tasks-request-state-removal": _TASKS,
    "tasks-mrtr-input": _TASKS,
    "tasks-request-headers": _TASKS,
    "tasks-dispatch-and-envelope": _TASKS,
    "tasks-required-task-error": _TASKS,
    "tasks-mrtr-composition": _TASKS,
}
# Checks of scenarios that apply otherwise.
NO_CHECKS = {
    "sep-2549-prompts-list-caching-hints": _PROMPTS,
    "sep-2575-http-server-no-independent-requests-on-stream": _ASKS,
    "sep-2575-server-no-log-without-loglevel": "it logs nothing to a client",
    "sep-2575-server-sends-tools-list-changed-on-subscription": "its tools never change",
}


class Server(ThreadServer):
    """The server of a thread, with the tools and resources of the runner's scenarios."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        for method, kind, call in (
            ("tools/list", types.PaginatedRequestParams, self._tools),
            ("tools/call", types.CallToolRequestParams, self._call),
            ("resources/read", types.ReadResourceRequestParams, self._content),
        ):
            entry = self.sdk.get_request_handler(method)
            assert entry is not None
            self.sdk.add_request_handler(method, kind, _after(call, entry.handler))

    async def _tools(self, ctx: Any, params: Any, handler: Any) -> Any:
        found = await handler(ctx, params)
        schema = {"type": "object", "properties": {}}
        found.tools += [
            types.Tool(name=name, description="For a scenario.", input_schema=schema)
            for name in ("test_simple_text", "test_error_handling", "test_missing_capability")
        ]
        return found

    async def _call(self, ctx: Any, params: Any, handler: Any) -> Any:
        if params.name == "test_missing_capability":
            needs: Any = {"requiredCapabilities": {"sampling": {}}}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "It needs sampling.", needs)
        texts = {
            "test_simple_text": "This is a simple text response for testing.",
            "test_error_handling": "This tool intentionally returns an error for testing",
        }
        if params.name not in texts:
            return await handler(ctx, params)
        block = types.TextContent(type="text", text=texts[params.name])
        return types.CallToolResult(content=[block], is_error=params.name == "test_error_handling")

    async def _content(self, ctx: Any, params: Any, handler: Any) -> Any:
        uri = str(params.uri)
        texts = {
            "test://static-text": "This is the content of the static text resource.",
            "test://template/123/data": '{"id":"123","templateTest":true,"data":"Data for ID: 123"}',
        }
        if uri not in texts:
            return await handler(ctx, params)
        found = types.TextResourceContents(uri=uri, mime_type="text/plain", text=texts[uri])
        return types.ReadResourceResult(contents=[found])


def _after(call: Callable[..., Any], handler: Any) -> Callable[..., Any]:
    async def run(ctx: Any, params: Any) -> Any:
        return await call(ctx, params, handler)

    return run


@pytest.mark.parametrize("revision", SUITES)
def test_conformance(
    serve: Callable[..., httpx.Client],
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    revision: str,
) -> None:
    """Each check of each scenario of a revision succeeds, but for those that are not for it."""
    from playwright._impl._driver import compute_driver_executable  # a Node that is new enough

    monkeypatch.setattr(mounting, "ThreadServer", Server)
    client = serve(path, mcp=mounting.Mount, token="", insecure=True)
    url = f"{str(client.base_url).rstrip('/')}/mcp"
    subprocess.run(
        [compute_driver_executable()[0], RUNNER, "server", "--url", url, *SUITES[revision],
         "--output-dir", tmp_path / "out"],
        capture_output=True, check=False, timeout=100,
    )  # fmt: skip
    faults: list[tuple[str, str, str | None]] = []
    ran, fails = set(), set()
    for file in sorted((tmp_path / "out").glob("*/checks.json")):
        scenario = file.parent.name.removeprefix("server-").partition("-2026-")[0]
        ran.add(scenario)
        for check in json.loads(file.read_text(encoding="utf-8")):
            is_bad = check["status"] not in ("SUCCESS", "SKIPPED", "INFO")
            fails |= {scenario} if is_bad else set()
            if is_bad and scenario not in NOT_HERE and check["id"] not in NO_CHECKS:
                faults.append((scenario, check["id"], check.get("errorMessage")))
    assert not faults, "\n".join(map(str, faults))
    assert NOT_HERE.keys() & ran <= fails  # or it would be for this server after all
    assert len(ran) >= 32
    assert {"tools-list", "tools-call-simple-text", "resources-list"} <= ran
