"""Which path leads to what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


class Routes(Generic[T]):
    """What each method of each path leads to; a segment in braces takes any text."""

    def __init__(self, routes: Iterable[tuple[str, str, T]]) -> None:
        by_path: dict[str, dict[str, T]] = {}
        for method, path, target in routes:
            by_path.setdefault(path, {})[method] = target
        paths = sorted(by_path.items(), key=lambda one: one[0].count("{"))
        self._paths = [(path.strip("/").split("/"), methods) for path, methods in paths]

    def find(self, path: bytes) -> tuple[dict[str, T], dict[str, str]] | None:
        """Return what a path leads to, by method, and what stands for its braces.

        Segments are decoded one by one, so that a name may hold a slash.
        """
        words = [unquote(part) for part in path.decode("ascii", "replace").strip("/").split("/")]
        for parts, methods in self._paths:
            if len(parts) == len(words):
                pairs = [*zip(parts, words, strict=True)]
                if all(part == word or part[:1] == "{" for part, word in pairs):
                    return methods, {part[1:-1]: word for part, word in pairs if part[:1] == "{"}
        return None
