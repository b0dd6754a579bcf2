"""Convert session entries for storage and back: images become blob refs, long text is cut.

An entry is a plain JSON value. `externalize` passes bytes to a `put` and leaves refs; `rehydrate`
asks a `get` for them. Neither knows where the bytes are stored. Both leave the entry untouched, and
share with it all that does not change. A value may hold numbers that keep their text, see
`eventq.output.spelling`.

    where                                                what is put            what remains
    `data` of images in `content`, `images`, `frames`    the decoded base64     the ref
    `data` of the `source` of such an image              the decoded base64     the ref
    `result` of an `image_generation_call`               the decoded base64     the ref
    `image_url`, or `url` in it: a data URL of an image  its UTF-8              the ref
    text of more than MAX_CHARS                          its UTF-8, if `full`   its start and NOTICE
    a signature of more than MAX_CHARS                   its UTF-8, if `full`   ""
    `partialJson`, `jsonlEvents`                         their JSON, if `full`  no key

An entry that is kept in full has a last key `eventq:full`, which names everything that was cut. It
maps a JSON pointer (RFC 6901) into the remaining entry to `{"ref": ref}` for a text, with its
former `lineCount` if that changed, or to `{"json": ref, "at": n}` for a removed value that was the
n-th of its object.
"""

from __future__ import annotations

from eventq.errors import InputError
from eventq.records.checks import REF, SHA256, refs_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Any

    Box = Any  # a dict or a list
    Key = str | int
    Path = tuple[Key, ...]  # the keys from the entry to a box
    Form = Callable[[bytes], Any]  # from the bytes of a blob to the value in the entry
    Place = tuple[Box, "Place | None", Key, int]  # a box, its parent, its key there, its level
    Want = tuple[Form, Path, Key, str | None]  # where a blob belongs; its pointer, if any

MAX_CHARS = 500_000  # UTF-16 units
NOTICE = "\n\n[Session persistence truncated large content]"
THRESHOLD = 1024  # characters of base64; an image of fewer stays where it is
SIGNATURES = frozenset({"thinkingSignature", "thoughtSignature", "textSignature"})
TRANSIENTS = frozenset({"partialJson", "jsonlEvents"})
FULL = "eventq:full"
DEEPEST = 500  # nested arrays and objects; Python's own parser fails below a thousand
_PREFIXES = (REF, SHA256)
_GALLERIES = frozenset({"content", "images", "frames"})
_BOXES = (dict, list)
_MIMES = ("mimeType", "mime_type", "media_type")


def externalize(entry: Any, put: Callable[[bytes], str], *, full: bool = False) -> Any:
    """Return an entry in its stored form; `put` stores bytes and returns their ref.

    With `full` nothing is lost: what is cut is stored too, and named in the entry, which must be an
    object. An entry that is already externalized is returned unchanged. Raises InputError for more
    than DEEPEST levels.
    """
    if isinstance(entry, dict):
        return entry if FULL in entry else _Externalizer(entry, put, full=full).run()
    if full:
        raise InputError("only an object can be externalized in full", "put the value in an object")
    if isinstance(entry, list):
        return _Externalizer(entry, put, full=False).run()
    return _cut(entry) if isinstance(entry, str) and _is_oversize(entry) else entry


def rehydrate(
    entry: Any,
    get: Callable[[str], bytes | None],
    warn: Callable[[str], object],
    *,
    parse: Callable[[bytes], Any] | None = None,
) -> Any:
    """Return the original of an externalized entry; `get` returns the bytes of a ref, or None.

    `get` is called once for each well-formed ref. A ref whose blob is missing stays, so that a
    later call may find it, and `warn` gets a sentence. `parse` reads the JSON of removed values
    (default: `json.loads`). Raises InputError for more than DEEPEST levels, and whatever `get`
    raises.
    """
    if not isinstance(entry, _BOXES):
        return entry
    return _Rehydrator(entry, get, warn, parse or _json).run()


def refs(entry: Any) -> list[str]:
    """Return the sorted `blob:blake3:` refs in an entry or any value, also inside other text.

    Raises InputError for more than DEEPEST levels.
    """
    found: set[bytes] = set()
    for text in _all_texts(entry):
        found |= refs_in(text)
    return [REF + digest.hex() for digest in sorted(found)]


def foreign_refs(entry: Any) -> list[str]:
    """Return the sorted `blob:sha256:` refs of images in an entry of another tool."""
    if not isinstance(entry, _BOXES):
        return []
    found = {
        text
        for place, key, text in _values(entry)
        if _form(place, key) is not None and text.startswith(SHA256) and _is_ref(text)
    }
    return sorted(found)


class _Draft:
    """A changed value: boxes around a change are copied once, all others are shared."""

    def __init__(self, root: Box) -> None:
        self.root = root
        self._copies: set[int] = set()

    def box(self, path: Path) -> Box:
        """Return a mutable copy of the box at a path."""
        if not self._copies:
            self.root = self._copy(self.root)
        box = self.root
        for key in path:
            inner = box[key]
            if id(inner) not in self._copies:
                inner = box[key] = self._copy(inner)
            box = inner
        return box

    def _copy(self, box: Box) -> Box:
        made = box.copy()
        self._copies.add(id(made))
        return made


class _Externalizer:
    """Externalizes one entry."""

    def __init__(self, entry: Box, put: Callable[[bytes], str], *, full: bool) -> None:
        self._entry = entry
        self._put = put
        self._full = full
        self._draft = _Draft(entry)
        self._notes: dict[str, dict[str, Any]] = {}

    def run(self) -> Any:
        for place, key, value in _values(self._entry):
            if key in TRANSIENTS:
                self._remove(place, str(key), value)
                continue
            bare = _bare(value, _form(place, key))
            if bare is not None:
                if bare:
                    self._draft.box(_path(place))[key] = self._put(bare)
            elif _is_oversize(value):
                self._shorten(place, key, value)
        if self._notes:
            self._draft.box(())[FULL] = self._notes
        return self._draft.root

    def _shorten(self, place: Place, key: Key, text: str) -> None:
        short = "" if key in SIGNATURES else _cut(text)
        changes: dict[Key, Any] = {key: short}
        note: dict[str, Any] = {}
        if key == "content":
            lines = place[0].get("lineCount")
            if type(lines) is int and lines != short.count("\n") + 1:
                changes["lineCount"] = short.count("\n") + 1
                note["lineCount"] = lines
        if self._full:
            ref = self._put(text.encode("utf-8", "surrogatepass"))
            self._notes[_pointer(place, key)] = {"ref": ref, **note}
        box = self._draft.box(_path(place))
        for changed, value in changes.items():
            box[changed] = value

    def _remove(self, place: Place, key: str, value: Any) -> None:
        if self._full:
            spelled = _spell(value, place[3])
            if spelled is None:  # it could not be restored, so it stays
                return
            self._notes[_pointer(place, key)] = {
                "json": self._put(spelled),
                "at": list(place[0]).index(key),
            }
        del self._draft.box(_path(place))[key]


class _Rehydrator:
    """Rehydrates one entry."""

    def __init__(
        self,
        entry: Box,
        get: Callable[[str], bytes | None],
        warn: Callable[[str], object],
        parse: Callable[[bytes], Any],
    ) -> None:
        self._entry = entry
        self._get = get
        self._warn = warn
        self._parse = parse
        self._draft = _Draft(entry)
        self._wanted: dict[str, list[Want]] = {}
        # The removed members of each object, by position and key, and those that blobs restored.
        self._removed: dict[Path, list[tuple[int, str]]] = {}
        self._found: dict[tuple[Path, Key], Any] = {}
        self._done: set[str] = set()  # pointers

    def run(self) -> Any:
        self._look_for_images()
        notes = self._entry.get(FULL) if isinstance(self._entry, dict) else None
        if notes is not None:
            self._look_for_notes(notes)
        for ref, wants in self._wanted.items():
            self._resolve(ref, wants)
        for path, removed in self._removed.items():
            self._put_back(path, removed)
        if notes is not None and self._done:
            self._forget(notes)
        return self._draft.root

    def _look_for_images(self) -> None:
        for place, key, text in _values(self._entry):
            form = _form(place, key)
            if form is None or not text.startswith(_PREFIXES):
                continue
            if _is_ref(text):
                self._wanted.setdefault(text, []).append((form, _path(place), key, None))
            else:
                self._warn(f"{_shown(text)} is not the ref of a blob; it stays as it is")

    def _look_for_notes(self, notes: Any) -> None:
        """Add the notes of `eventq:full`; they may be invalid, as entries come from elsewhere."""
        for pointer, note in notes.items() if isinstance(notes, dict) else [("", notes)]:
            place = _find(self._entry, pointer)
            want = None if place is None else _want(*place, pointer, note)
            if want is None:
                self._warn(
                    f"{_shown(pointer)} of {FULL} names nothing that can be restored; it stays"
                    f" as it is"
                )
                continue
            ref, (form, path, key, _) = want
            self._wanted.setdefault(ref, []).append(want[1])
            if form is _json:
                self._removed.setdefault(path, []).append((note["at"], str(key)))

    def _resolve(self, ref: str, wants: list[Want]) -> None:
        """Restore the content of a blob wherever it is wanted; equal texts are one object."""
        data = self._get(ref)
        if data is None:
            self._warn(f"blob {ref} is missing; the entry keeps its ref")
            return
        made: dict[Form, Any] = {}
        for form, path, key, pointer in wants:
            try:
                value = (
                    self._parse(data)
                    if form is _json
                    else made[form]
                    if form in made
                    else form(data)
                )
            except (ValueError, RecursionError):
                self._warn(f"blob {ref} does not fit the entry, which keeps its ref")
                continue
            if form is _json:
                self._found[path, key] = value
            else:
                made[form] = value
                self._draft.box(path)[key] = value
            if pointer is not None:
                self._done.add(pointer)

    def _put_back(self, path: Path, removed: list[tuple[int, str]]) -> None:
        """Insert removed values at their positions, less the missing ones before them."""
        if not any((path, key) in self._found for _, key in removed):
            return
        box = self._draft.box(path)
        items = [*box.items()]
        missing = 0
        for at, key in sorted(removed):
            if (path, key) in self._found:
                items.insert(at - missing, (key, self._found[path, key]))
            else:
                missing += 1
        box.clear()
        box.update(items)

    def _forget(self, notes: dict[str, Any]) -> None:
        """Restore the line counts of the notes that were put back, and drop these notes."""
        for pointer in self._done:
            place = _find(self._entry, pointer)
            if place is not None and "lineCount" in notes[pointer] and _has(place[2], "lineCount"):
                self._draft.box(place[0])["lineCount"] = notes[pointer]["lineCount"]
        left = {pointer: note for pointer, note in notes.items() if pointer not in self._done}
        if left:
            self._draft.box(())[FULL] = left
        else:
            del self._draft.box(())[FULL]


# --- positions ------------------------------------------------------------------------------------


def _boxes(
    entry: Box,
    level: int = 1,
    skip: Collection[Key] = TRANSIENTS,
    kinds: tuple[type, ...] = _BOXES,
) -> Iterator[Place]:
    """Yield every array and object, parents before children, but not those under `skip`.

    Not recursive: the depth of a hostile entry must not depend on the caller's stack.
    """
    todo: list[Place] = [(entry, None, "", level)]
    while todo:
        place = todo.pop()
        level = place[3]
        if level > DEEPEST:
            raise _too_deep()
        yield place
        inner = [
            (value, place, key, level + 1)
            for key, value in _pairs(place[0])
            if isinstance(value, kinds) and key not in skip
        ]
        inner.reverse()
        todo += inner


def _values(entry: Box) -> Iterator[tuple[Place, Key, Any]]:
    """Yield the place, key and value of every text and every transient."""
    for place in _boxes(entry):
        for key, value in _pairs(place[0]):
            if isinstance(value, str) or key in TRANSIENTS:
                yield place, key, value


def _all_texts(entry: Any) -> Iterator[str]:
    """Yield every text and every key of an entry."""
    if isinstance(entry, str):
        yield entry
    kinds = (*_BOXES, tuple)  # JSON has the same for both
    if isinstance(entry, kinds):
        for place in _boxes(entry, skip=(), kinds=kinds):
            for pair in _pairs(place[0]):
                yield from (text for text in pair if isinstance(text, str))


def _pairs(box: Box) -> Iterable[tuple[Key, Any]]:
    return box.items() if isinstance(box, dict) else enumerate(box)


def _path(place: Place) -> Path:
    keys = []
    above = place[1]
    while above is not None:
        keys.append(place[2])
        place, above = above, above[1]
    return tuple(reversed(keys))


def _pointer(place: Place, key: Key) -> str:
    """Return the JSON pointer of a key in a place."""
    return "".join(
        f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in (*_path(place), key)
    )


def _find(entry: Box, pointer: str) -> tuple[Path, Key, Box] | None:
    """Return the path, key and box of a pointer, or None if no box is there; the key may be new."""
    box = entry
    path: list[Key] = []
    steps = pointer.split("/")
    if steps.pop(0) or not steps:
        return None
    last = steps.pop()
    for step in steps:
        key = _key(box, step)
        if not _has(box, key):
            return None
        path.append(key)
        box = box[key]
    return (tuple(path), _key(box, last), box) if isinstance(box, _BOXES) else None


def _key(box: Box, step: str) -> Key:
    """Return a step of a pointer as a key of a box; -1 for what is no index of an array."""
    if not isinstance(box, list):
        return step.replace("~1", "/").replace("~0", "~")
    good = step.isascii() and step.isdigit() and len(step) < 10 and (step == "0" or step[0] != "0")
    return int(step) if good else -1


def _has(box: Box, key: Key) -> bool:
    if isinstance(box, list):
        return isinstance(key, int) and 0 <= key < len(box)
    return isinstance(box, dict) and key in box


def _form(place: Place, key: Key) -> Form | None:
    """Return the function from a blob to the image at a key, or None if there is no image."""
    if key == "data":
        return _base64 if _is_image(place) or _is_source(place) else None
    if key == "result":
        return _base64 if place[0].get("type") == "image_generation_call" else None
    if key == "image_url" or (key == "url" and place[2] == "image_url"):
        return _utf8
    return None


def _is_image(place: Place | None) -> bool:
    """Return whether an object is an image in one of an entry's galleries."""
    if (
        place is None
        or place[1] is None
        or not isinstance(place[1][0], list)
        or place[1][2] not in _GALLERIES
    ):
        return False
    box = place[0]
    if not isinstance(box, dict):
        return False
    mimes = (box.get(name) for name in _MIMES)
    return box.get("type") == "image" or any(
        isinstance(mime, str) and mime.startswith("image/") for mime in mimes
    )


def _is_source(place: Place) -> bool:
    """Return whether an object is the source of an image."""
    return place[2] == "source" and place[0].get("type") == "base64" and _is_image(place[1])


# --- values ---------------------------------------------------------------------------------------


def _bare(text: str, form: Form | None) -> bytes | None:
    """Return the bytes of an image to put, b"" for one that stays, None for any other text."""
    if form is _base64:
        return (_decoded(text) if len(text) >= THRESHOLD else None) or b""
    if form is not _utf8 or not text.startswith("data:image/") or ";base64," not in text:
        return None
    try:
        return text.encode()
    except UnicodeEncodeError:  # an unpaired surrogate: UTF-8 would not restore it
        return b""


def _decoded(text: str) -> bytes | None:
    """Return the bytes of base64, or None unless encoding them returns the same text.

    Strict decoding refuses other alphabets and missing padding. Excess padding and unused bits that
    are set show in the last four characters. Encoding everything again to compare takes twice the
    time.
    """
    from binascii import a2b_base64, b2a_base64

    try:
        data = a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
    return (
        data
        if b2a_base64(data[-(len(data) % 3 or 3) :], newline=False).decode() == text[-4:]
        else None
    )


def _base64(data: bytes) -> str:
    from binascii import b2a_base64

    return b2a_base64(data, newline=False).decode()


def _utf8(data: bytes) -> str:
    return data.decode()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _json(data: bytes) -> Any:
    from json import loads

    return loads(data)


def _spell(value: Any, level: int) -> bytes | None:
    """Return a value at a level as JSON, or None for ints longer than Python writes."""
    from eventq.output.spelling import ASCII, spell

    if isinstance(value, _BOXES):
        for _ in _boxes(value, level + 1, skip=()):
            pass
    try:
        return spell(value, ASCII).encode()
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        return None


def _is_oversize(text: str) -> bool:
    """Return whether a text has more than MAX_CHARS UTF-16 units; most need no counting."""
    if len(text) > MAX_CHARS or len(text) <= MAX_CHARS // 2 or text.isascii():
        return len(text) > MAX_CHARS
    return len(text.encode("utf-16-le", "surrogatepass")) > MAX_CHARS * 2


def _cut(text: str) -> str:
    """Return the start of a text and NOTICE, in MAX_CHARS UTF-16 units without splitting a pair."""
    kept = MAX_CHARS - len(NOTICE)
    if text.isascii():
        return text[:kept] + NOTICE
    units = text[:kept].encode("utf-16-le", "surrogatepass")[: kept * 2]
    if units[-1] & 0xFC == 0xD8:  # the high half of a pair
        units = units[:-2]
    return units.decode("utf-16-le", "surrogatepass") + NOTICE


def _is_ref(text: Any) -> bool:
    """Return whether a text is a ref: a prefix, and 64 lower-case hex digits."""
    good = isinstance(text, str) and text.startswith(_PREFIXES) and len(text) == len(REF) + 64
    return good and not text[len(REF) :].strip("0123456789abcdef")


def _want(path: Path, key: Key, box: Box, pointer: str, note: Any) -> tuple[str, Want] | None:
    """Return the ref and the want of a note about a key of a box, or None if it is invalid."""
    if not isinstance(note, dict):
        return None
    if "ref" in note:
        good = _has(box, key) and isinstance(box[key], str) and _is_ref(note["ref"])
        return (note["ref"], (_text, path, key, pointer)) if good else None
    at = note.get("at")
    good = (
        isinstance(box, dict)
        and key not in box
        and type(at) is int
        and at >= 0
        and _is_ref(note.get("json"))
    )
    return (note["json"], (_json, path, key, pointer)) if good else None


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 100 else f"{text[:99]!r}…"


def _too_deep() -> InputError:
    return InputError("the entry is nested too deeply", "flatten it")
