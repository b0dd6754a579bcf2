"""The tokens of models over HTTP: of the thread, a context, a run, and the hours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

    import eventq


def message(out: int) -> dict[str, Any]:
    """Return a response of a model."""
    usage = {"input_tokens": 10, "output_tokens": out, "cache_read_input_tokens": 3}
    at = "2026-03-01T10:20:00Z"
    return {"role": "assistant", "model": "m", "content": "x", "usage": usage, "timestamp": at}


def test_tokens_over_http(client: httpx.Client, thread: eventq.Thread) -> None:
    """Sums by model, of all or of a part; what is not there is said."""
    thread.contexts.create("chat").append(message(5))
    run = thread.runs.start("work", "do it", label="build")
    run.step("a", {"usage": {"output_tokens": 70}}, "one")
    counts = {"out": 5, "fresh": 10, "cached": 3, "responses": 1}
    chat = {
        **counts, "models": [{"model": "m", **counts}], "subagents": None, "is_all": True,
    }  # fmt: skip
    assert client.get("usage", params={"context": "chat"}).json() == chat
    hour = 1_772_359_200_000
    assert client.get("usage", params={"since": hour, "until": hour + 3_600_000}).json() == chat
    assert client.get("usage").json()["out"] == 75
    for name in ("build", str(run.id)):
        assert client.get("usage", params={"run": name}).json()["out"] == 70
    hours = client.get("usage/hours", params={"until": hour + 3_600_000}).json()
    assert hours == {"hours": [{"at": hour, **counts}]}
    assert len(client.get("usage/hours").json()["hours"]) == 2
    assert client.get("usage", params={"context": "no"}).status_code == 404
    assert client.get("usage", params={"run": "chat"}).status_code == 404
    assert client.get("usage", params={"run": "build", "context": "chat"}).status_code == 400
    assert client.get("usage", params={"since": -1}).status_code == 400
