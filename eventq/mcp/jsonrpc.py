"""Messages of JSON-RPC as they come: what is none is answered at once, by its id if that is known.

The SDK answers some of these with silence, and takes a request whose id is a fraction for a
notification. So every transport looks here first, and hands on what the SDK accepts.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcp_types import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

Object = dict[str, Any]

BATCHED = "2025-03-26"  # the only revision that has arrays of messages
MOST = 100  # messages of an array
MOST_BYTES = 1 << 20  # of one: an array takes many times its length in memory
encode = to_json


def error(code: int, what: str, number: Any = None) -> Object:
    """Return the reply that refuses a message; `number` is its id, if that is known and valid."""
    if type(number) not in (str, int) or any("\ud800" <= one <= "\udfff" for one in str(number)):
        number = None
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": what}}


def read(data: bytes, *, batched: bool) -> tuple[Any, Object | None]:
    """Return a message, or with `batched` a list of what may be messages; or the error for it.

    Unpaired surrogates are refused, as no text that is stored can hold them.
    """
    data = data.removeprefix(BOM_UTF8)
    is_array = data.lstrip()[:1] == b"["
    if is_array and not batched:
        return None, error(INVALID_REQUEST, "an array is no message - send one at a time")
    if is_array and len(data) > MOST_BYTES:
        return None, error(INVALID_REQUEST, f"an array has at most {MOST_BYTES:,} bytes - cut it")
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as wrong:
        number = None if is_array else _id_in(data)
        code = PARSE_ERROR if number is None else INVALID_REQUEST
        return None, error(code, f"this is no JSON in UTF-8: {wrong} - correct it", number)
    if not is_array:
        return value, refusal(value)
    if not 0 < len(value) <= MOST:
        return None, error(INVALID_REQUEST, f"an array has 1 to {MOST} messages - cut it")
    return value, None


def refusal(value: Any) -> Object | None:
    """Return the error for what is no message, None for a message."""
    if not isinstance(value, dict):
        return error(INVALID_REQUEST, "a message is an object - send a request")
    number = value.get("id")
    code, what = INVALID_REQUEST, ""
    if value.get("jsonrpc") != "2.0":
        what = 'jsonrpc must be "2.0"'
    elif "method" in value and "id" in value and type(number) not in (str, int):
        what = "id must be a string or an integer"
    elif "method" in value and ("result" in value or "error" in value):
        what = "a message is a request or a reply, not both"
    elif "method" in value and not isinstance(value.get("params", {}), dict | None):
        code, what = INVALID_PARAMS, "params must be an object"
    else:
        try:
            jsonrpc_message_adapter.validate_python(value, by_name=False)
            return None
        except ValidationError:
            what = "this is no request, no notification and no reply"
    # The id of a reply is one of ours: an error with it would look like the reply to another call.
    is_reply = "method" not in value and ("result" in value or "error" in value)
    return error(code, f"{what} - correct it", None if is_reply else number)


def taken_id(number: Any) -> Object:
    """Return the error for a request with the id of one that waits for its reply."""
    return error(INVALID_REQUEST, "another request has this id - give each its own", number)


def is_request(value: Object) -> bool:
    """Return whether a message wants a reply."""
    return "method" in value and "id" in value


def _id_in(data: bytes) -> Any:
    """Return the id of what is nearly a message, such as one with an unpaired surrogate."""
    with suppress(ValueError, RecursionError):
        value = json.loads(data.decode(errors="replace"))
        return value.get("id") if isinstance(value, dict) and "method" in value else None
    return None


class Batch:
    """The messages of an array, and the replies to them, which are one array as well."""

    def __init__(self, values: list[Any], taken: Iterable[Any] = ()) -> None:
        """Sort the values: `messages` are handed on, the others have their replies.

        `taken` are ids of requests that wait for theirs already.
        """
        self.messages: list[Object] = []
        self.waits: set[Any] = set()  # the ids of requests without a reply
        self._replies: list[Object] = []
        for value in values:
            wrong = refusal(value)
            if wrong is None and is_request(value):
                number = value["id"]  # the SDK takes 1 and "1" for one over HTTP
                if str(number) in map(str, (*self.waits, *taken)):
                    wrong = taken_id(number)
                elif value["method"] == "initialize":
                    what = "initialize stands alone - send it by itself"
                    wrong = error(INVALID_REQUEST, what, value["id"])
                else:
                    self.waits.add(value["id"])
            if wrong is None:
                self.messages.append(value)
            else:
                self._replies.append(wrong)

    def add(self, reply: Object) -> None:
        """Take the reply to one of the requests."""
        self.waits.remove(reply["id"])
        self._replies.append(reply)

    def replies(self) -> bytes | None:
        """Return the array of replies once all are there; None before, or if none is wanted."""
        return None if self.waits or not self._replies else encode(self._replies)
