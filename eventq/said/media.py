"""What bytes are, in a few words: the kind of a file, the size of an image, how long it is."""

from __future__ import annotations

from eventq.said.blocks import Media

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = 64 << 10  # bytes by which a file is recognised; the size of a JPEG stands behind its profile
_MARKS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"), (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"), (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\x7fELF", "application/x-executable"), (b"SQLite format 3\0", "application/vnd.sqlite3"),
)  # fmt: skip
_NAMES = {
    "application/vnd.sqlite3": "SQLite database", "application/x-executable": "program",
    "image/svg+xml": "SVG", "text/plain": "text", "": "file",
}  # fmt: skip
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # that a browser may show


def type_of(head: bytes) -> str:
    """Return the media type of a file by its first bytes, "" for an unknown one."""
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for mark, kind in _MARKS if head.startswith(mark)), "")


def of_bytes(head: bytes, size: int) -> str:
    """Return what a file is that begins so and has so many bytes: "PNG 800 × 600, 40 kB"."""
    kind = type_of(head)
    pixels = _PIXELS[kind](head) if kind in _PIXELS else None
    name = _named(kind) if kind else "binary"
    return f"{name}{f' {pixels[0]:,} × {pixels[1]:,}' if pixels else ''}, {amount(size)}"


def of_type(media_type: str, size: int | None = None) -> str:
    """Return what a file of a media type is, of which nothing more is known than its size."""
    return _named(media_type) + (f", {amount(size)}" if size else "")


def at(ref: str, media_type: str, name: str = "") -> Media:
    """Return what stands at a reference: that of a blob, a data URL, or an address elsewhere."""
    if ref.startswith("data:"):
        head, _, data = ref.partition(",")
        kind = head.removeprefix("data:").split(";")[0] or media_type
        return Media(of_type(kind, len(data) * 3 // 4), kind, None, name)
    if ref.startswith("blob:"):
        return Media(of_type(media_type), media_type, ref, name)
    if ref.startswith(("http:", "https:", "file:")):
        return Media(f"{_named(media_type)} at {ref[:200]}", media_type, None, name)
    return Media(of_type(media_type, len(ref) * 3 // 4), media_type, None, name)


def amount(size: int) -> str:
    """Return a number of bytes as people say it: 1 byte, 999 bytes, 2 kB, 1.4 MB."""
    if size < 1_000:
        return f"{size} byte{'s' * (size != 1)}"
    for unit, one in (("kB", 1_000), ("MB", 1_000_000)):
        if size < 999.5 * one:
            return f"{size / one:.1f} {unit}" if size < 9.95 * one else f"{size / one:.0f} {unit}"
    return f"{size / 1_000_000_000:,.1f} GB"


def _named(media_type: str) -> str:
    family, _, name = media_type.partition("/")
    return _NAMES.get(media_type) or name.upper().removeprefix("X-") or family or "file"


def _png(head: bytes) -> tuple[int, int] | None:
    return (_big(head, 16, 4), _big(head, 20, 4)) if len(head) >= 24 else None


def _gif(head: bytes) -> tuple[int, int] | None:
    return (_little(head, 6, 2), _little(head, 8, 2)) if len(head) >= 10 else None


def _webp(head: bytes) -> tuple[int, int] | None:
    """Return width and height of the three kinds of WebP: RFC 9649, section 2."""
    if len(head) < 30:
        return None
    kind = head[12:16]
    if kind == b"VP8X":
        return _little(head, 24, 3) + 1, _little(head, 27, 3) + 1
    if kind == b"VP8L":
        bits = _little(head, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return _little(head, 26, 2) & 0x3FFF, _little(head, 28, 2) & 0x3FFF


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """Return width and height from the first frame: ITU T.81, annex B.2."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        mark = head[at + 1]
        if 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):
            return _big(head, at + 7, 2), _big(head, at + 5, 2)
        at += 2 + max(2, _big(head, at + 2, 2))
    return None


def _big(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "big")


def _little(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "little")


_PIXELS: dict[str, Callable[[bytes], tuple[int, int] | None]] = {
    "image/png": _png, "image/gif": _gif, "image/webp": _webp, "image/jpeg": _jpeg,
}  # fmt: skip
