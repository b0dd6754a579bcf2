"""The types of turns as clients of CXDB register them, and payloads read and written by them.

A payload is a MessagePack map from the tags of fields, which are numbers or their digits, to
values. Bundles of types are kept as turns of a context of the thread, so that packs and copies take
them along.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

import msgpack

from eventq.errors import EventqError, InputError, UnknownContextError
from eventq.record import Record
from eventq.records.turn import NewTurn
from eventq.store.turn_rows import GONE
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eventq.thread import Thread

    Fields = dict[int, dict[str, Any]]
    Object = dict[str, Any]

CONTEXT = "cxdb.registry"  # the context that keeps the bundles
TYPE = "cxdb.bundle"
MSGPACK = 1  # the encoding of a turn
DEEPEST = 100  # levels of a payload that are looked at
_EXACT = 1 << 53  # integers below it are exact in JSON, whoever reads it
_U64 = ("u64", "uint64", "i64", "int64")
_WHOLE = (*_U64, "u32", "uint32", "i32", "int32", "u16", "u8", "uint8", "int8")
_TIMES = ("unix_ms", "time_ms", "timestamp_ms")
_BYTES = ("bytes", "typed_blob")


class Rendering(Record):
    """How values are shown: `numbers` shows 64-bit integers as numbers instead of text.

    `of_bytes` is base64, hex or len_only, `of_enums` label, number or both, `of_times` iso or
    unix_ms.
    """

    numbers: bool = False
    of_bytes: str = "base64"
    of_enums: str = "label"
    of_times: str = "iso"
    unknown: bool = False

    def of_id(self, number: int) -> int | str:
        """Return an id, which is text unless numbers are asked for."""
        return number if self.numbers else str(number)

    def bytes(self, data: bytes) -> Any:
        """Return bytes."""
        if self.of_bytes == "len_only":
            return len(data)
        return data.hex() if self.of_bytes == "hex" else b64encode(data).decode()

    def plain(self, value: Any) -> Any:
        """Return a value of which nothing is known."""
        if isinstance(value, dict):
            return {
                key if isinstance(key, str) else str(key): self.plain(one)
                for key, one in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.plain(one) for one in value]
        if isinstance(value, bytes):
            return self.bytes(value)
        if isinstance(value, int) and abs(value) >= _EXACT and not self.numbers:
            return str(value)
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if value is None or isinstance(value, (str, int, float, bool)):
            return value
        return str(value)  # an extension of MessagePack


class Registry:
    """All types of some bundles; of a type in several, the last one counts."""

    def __init__(self) -> None:
        self.bundles: dict[str, bytes] = {}
        self.newest: str | None = None
        self._types: dict[str, dict[int, Fields]] = {}
        self._enums: dict[str, dict[int, str]] = {}

    def add(self, text: bytes) -> None:
        """Add a bundle that `checked` has let through."""
        bundle = json.loads(text)
        self.newest = bundle["bundle_id"]
        self.bundles[bundle["bundle_id"]] = text
        for name, kind in bundle.get("types", {}).items():
            versions = self._types.setdefault(name, {})
            for version, one in kind["versions"].items():
                versions[int(version)] = {int(tag): field for tag, field in one["fields"].items()}
        for name, labels in bundle.get("enums", {}).items():
            self._enums[name] = {int(number): label for number, label in labels.items()}

    def fields(self, type_id: str, version: int | None = None) -> tuple[int, Fields] | None:
        """Return a version of a type, by default the newest, and its fields by tag; or None."""
        versions = self._types.get(type_id, {})
        found = max(versions, default=0) if version is None else version
        return (found, versions[found]) if found in versions else None

    # --- reading ----------------------------------------------------------------------------------

    def shown(self, payload: bytes, fields: Fields | None, how: Rendering) -> tuple[Any, Any]:
        """Return a payload by the names of its fields, and the members that have none."""
        value = unpacked(payload)
        if fields is None or not isinstance(value, dict):
            plain = how.plain(value)
            return plain if isinstance(plain, dict) else {"value": plain}, {}
        return self._object(value, fields, how)

    def _object(self, value: Object, fields: Fields, how: Rendering) -> tuple[Object, Object]:
        found, unknown = {}, {}
        names = {field["name"] for field in fields.values()}
        for key, one in value.items():
            field = fields.get(tag_of(key))
            if field is not None:
                found[field["name"]] = self._value(one, field, how)
            elif key in names:
                found[key] = how.plain(one)
            else:
                unknown[str(key)] = how.plain(one)
        return found, unknown

    def _value(self, value: Any, field: Mapping[str, Any], how: Rendering) -> Any:
        kind, inner = field.get("type"), self._inner(field)
        if inner is not None and isinstance(value, dict):
            found, unknown = self._object(value, inner, how)
            return {**found, "_unknown": unknown} if unknown and how.unknown else found
        items = field.get("items")
        if isinstance(value, (list, tuple)) and items is not None:
            of_item = items if isinstance(items, dict) else {"type": items}
            return [self._value(one, of_item, how) for one in value]
        if type(value) is not int:
            return how.plain(value)
        labels = self._labels(field)
        if value in labels and how.of_enums != "number":
            label = labels[value]
            return label if how.of_enums == "label" else {"number": value, "label": label}
        if kind in _TIMES and how.of_times == "iso":
            return _stamp(value)
        return how.of_id(value) if kind in _U64 else how.plain(value)

    def _labels(self, field: Mapping[str, Any]) -> dict[int, str]:
        """Return the labels of a field's numbers, {} for none."""
        name = field.get("enum")
        return self._enums.get(name, {}) if isinstance(name, str) else {}

    def _inner(self, field: Mapping[str, Any]) -> Fields | None:
        """Return the fields of what a field refers to: those of the newest version."""
        name = field.get("ref")
        found = self.fields(name) if isinstance(name, str) else None
        return found[1] if found else None

    # --- writing ----------------------------------------------------------------------------------

    def packed(self, data: Object, fields: Fields | None) -> bytes:
        """Return the MessagePack of an object: its names become tags, its keys are sorted.

        Raises InputError for a field that is missing.
        """
        return packed(data if fields is None else self._tagged(data, fields))

    def _tagged(self, data: Object, fields: Fields) -> dict[Any, Any]:
        by_name = {field["name"]: (tag, field) for tag, field in fields.items()}
        found: dict[Any, Any] = {}
        for name, value in data.items():
            tag, field = by_name.get(name) or (tag_of(name), fields.get(tag_of(name), {}))
            found[tag] = self._stored(value, field)
        for tag, field in fields.items():
            if tag not in found and not field.get("optional"):
                what = f"the field '{field['name']}' is missing"
                raise InputError(what, "give it, or register it as optional")
        return found

    def _stored(self, value: Any, field: Mapping[str, Any]) -> Any:
        kind, inner = field.get("type"), self._inner(field)
        if inner is not None and isinstance(value, dict):
            return self._tagged(value, inner)
        items = field.get("items")
        if isinstance(value, list) and items is not None:
            of_item = items if isinstance(items, dict) else {"type": items}
            return [self._stored(one, of_item) for one in value]
        if not isinstance(value, str):
            return value
        for number, label in self._labels(field).items():
            if label == value:
                return number
        if kind in _WHOLE and _is_whole(value):
            return int(value)
        if kind in _BYTES:
            try:
                return b64decode(value, validate=True)
            except ValueError as error:
                what = f"the field '{field.get('name')}' is no base64"
                raise InputError(what, "encode its bytes again") from error
        return value


class Bundles:
    """The registry of a thread, read again whenever it has grown or a part of it was erased."""

    def __init__(self) -> None:
        self._registry = Registry()
        self._seen: object = None  # the head that was read
        self._read: list[bytes] = []  # the digests of what was read

    def of(self, thread: Thread) -> Registry:
        """Return the registry of a thread."""
        try:
            context = thread.contexts.get(CONTEXT)
        except UnknownContextError:
            return Registry()
        head = context.head_id()
        if not head:
            return Registry()
        newest = thread.contexts.turn(head, payload=False)  # another thread may stand here by now
        seen = newest.turn_id, newest.hash, newest.created_at_ms
        rows = thread.contexts.turns.database.blobs.find(self._read) if self._read else {}
        if seen != self._seen or any(row.codec == GONE for row in rows.values()):
            registry, digests = Registry(), []
            for turn in context.at(head).replay():
                if turn.type_id == TYPE and turn.payload is not None:
                    registry.add(turn.payload)
                    digests.append(bytes.fromhex(turn.hash))
            self._registry, self._seen, self._read = registry, seen, digests
        return self._registry

    def put(self, thread: Thread, text: bytes) -> tuple[str, bool]:
        """Store a bundle; return its id, and whether it is new. Raises InputError."""
        bundle = checked(text)
        name = bundle["bundle_id"]
        with thread.write():
            known = self.of(thread).bundles.get(name)
            if known is None:
                try:
                    context = thread.contexts.get(CONTEXT)
                except UnknownContextError:
                    context = thread.contexts.create(CONTEXT)
                context.append(NewTurn(text, TYPE))
            elif json.loads(known) != bundle:
                what = f"the bundle '{name:.200}' is registered already, with other types"
                raise InputError(what, "give the new one another bundle_id")
        return name, known is None


def checked(text: bytes) -> Any:
    """Return a bundle that has the form of one. Raises InputError."""
    fix = "it has a bundle_id, a registry_version, and types with versions and fields"
    try:
        bundle = json.loads(text.decode("utf-8-sig"), parse_constant=_no_constant)
        wrong = [*_wrong(bundle)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"the bundle is malformed: {error!r:.200}", fix) from error
    if wrong:
        raise InputError(f"the bundle is malformed: {wrong[0]}", fix)
    return bundle


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _wrong(bundle: Any) -> Iterator[str]:
    """Yield what is wrong with a bundle; raises for a member that is missing or no object."""
    if not isinstance(bundle["bundle_id"], str) or not bundle["bundle_id"]:
        yield "its bundle_id is no text"
    else:
        bundle["bundle_id"].encode()  # raises for half of a character
    if type(bundle["registry_version"]) is not int or bundle["registry_version"] < 1:
        yield "its registry_version is no number from 1 on"
    numbers: list[Any] = []
    names: list[Any] = []
    for kind in bundle.get("types", {}).values():
        for version, one in kind["versions"].items():
            numbers += [version, *one["fields"]]
            names += [field["name"] for field in one["fields"].values()]
    for labels in bundle.get("enums", {}).values():
        numbers += labels
        names += labels.values()
    yield from (f"{one!r:.100} is no number" for one in numbers if not _is_whole(one))
    yield from (f"{one!r:.100} is no name" for one in names if not isinstance(one, str))


def unpacked(payload: bytes) -> Any:
    """Return the value of a payload: of MessagePack, else of JSON or text, else the bytes."""
    try:
        value = msgpack.unpackb(payload, strict_map_key=False, unicode_errors="replace")
        if isinstance(value, dict):
            return value if is_flat(value) else {"bytes": payload}
    except (ValueError, TypeError, msgpack.UnpackException):
        pass
    try:
        text = payload.decode()
        value = json.loads(text)
        return value if isinstance(value, dict) and is_flat(value) else {"text": text}
    except UnicodeDecodeError:
        return {"bytes": payload}
    except (ValueError, RecursionError):
        return {"text": text}


def is_flat(value: Any) -> bool:
    """Return whether a value is nested at most DEEPEST levels deep."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return True
    return False


def packed(value: Any) -> bytes:
    """Return MessagePack with the keys of maps sorted: numbers, which digits stand for, first."""
    if not is_flat(value):
        what = f"the data is nested more than {DEEPEST} levels deep"
        raise InputError(what, "send it less deep, or as text")
    try:
        found: bytes = msgpack.packb(_sorted(value), use_bin_type=True)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        what = f"the data cannot be stored as MessagePack: {error}"
        raise InputError(what, "make it smaller or less deep; integers have 64 bits") from error
    return found


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        tagged = {tag_of(key): one for key, one in value.items()}
        keys = sorted(tagged, key=lambda key: (isinstance(key, str), key))
        return {key: _sorted(tagged[key]) for key in keys}
    if isinstance(value, list):
        return [_sorted(one) for one in value]
    return value


def tag_of(key: Any) -> Any:
    """Return the number that the digits of a key stand for, or the key as it is."""
    return int(key) if isinstance(key, str) and _is_whole(key) else key


def _is_whole(text: Any) -> bool:
    """Return whether a text is a number as JSON writes it, of at most 64 bits."""
    if not isinstance(text, str) or not text.isascii() or len(text) > 20:
        return False
    digits = text.removeprefix("-")
    return digits.isdigit() and (digits == "0" or digits[0] != "0") and text != "-0"


def _stamp(at_ms: int) -> Any:
    try:
        return clock.stamp((at_ms + 0.5) / 1000)
    except (ValueError, OverflowError, OSError, EventqError):  # no time that a calendar has
        return at_ms
