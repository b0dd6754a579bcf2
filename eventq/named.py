"""Named tuples without start-up cost: the constructor is compiled on first use.

Importing `typing` takes 5 ms, and `collections` compiles a function per class: 1.2 ms for the rows
of the storage interface, more than storing a turn. The promises of the standard ones are kept:
fields by name and position, defaults, `_make`, `_asdict`, `_replace`, repr, matching, pickles,
signatures. Type checkers read the standard one: import `NamedTuple` under TYPE_CHECKING from
`typing`.
"""

from __future__ import annotations

from _collections import _tuplegetter  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Self

_UNCOMPILED = 20  # records that a class makes before its `__new__` is compiled


class _Record(tuple):  # type: ignore[type-arg]
    """The base of all named tuples; each class has its own fields."""

    __slots__ = ()
    __annotations__: dict[str, str]
    _left = _UNCOMPILED
    _fields: tuple[str, ...] = ()
    _field_defaults: dict[str, Any] = {}  # noqa: RUF012 (as the standard ones have it)

    def __new__(cls, *values: Any, **named: Any) -> Self:
        if named or len(values) != len(cls._fields) or not cls._left:
            made: Any = _maker(cls)  # it knows the defaults, and the errors
            cls.__new__ = made  # type: ignore[method-assign]
            return made(cls, *values, **named)  # type: ignore[no-any-return]
        cls._left -= 1
        return tuple.__new__(cls, values)

    @classmethod
    def _make(cls, row: Iterable[Any]) -> Self:
        """Return the record of one row."""
        made = tuple.__new__(cls, row)
        if len(made) != len(cls._fields):
            raise TypeError(f"expected {len(cls._fields)} fields, got {len(made)}")
        return made

    def _asdict(self) -> dict[str, Any]:
        """Return a dictionary with the keys in the order of the fields."""
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **values: Any) -> Self:
        """Return a record with other values in some fields."""
        made = self._make(map(values.pop, self._fields, self))
        if values:
            raise TypeError(f"unexpected fields: {', '.join(values)}")
        return made

    __replace__ = _replace

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({', '.join(shown)})"


def _maker(cls: type[_Record]) -> Callable[..., Any]:
    """Compile a `__new__` that takes the fields by position, by name or by default."""
    words = ", ".join(cls._fields)
    text = f"lambda _cls, {words}: _new(_cls, ({words},))"
    made = eval(text, {"_new": tuple.__new__})  # noqa: S307 (fields are identifiers)
    made.__name__, made.__qualname__ = "__new__", f"{cls.__qualname__}.__new__"
    made.__defaults__ = tuple(cls._field_defaults.values())
    made.__annotations__ = {**cls.__annotations__, "return": cls.__name__}
    return made  # type: ignore[no-any-return]


class _Signature:
    """A placeholder for the signature of a class, which `help` and editors read."""

    def __get__(self, _: object, cls: Any) -> object:
        from inspect import signature
        from types import MethodType

        return signature(MethodType(_maker(cls), cls))


class _Maker(type):
    """Make a named tuple of a class with annotated fields."""

    def __new__(cls, name: str, _: tuple[type, ...], body: dict[str, Any]) -> Any:
        fields = tuple(body.get("__annotations__", ()))
        defaults = {field: body.pop(field) for field in fields if field in body}
        for place, field in enumerate(fields):
            body[field] = _tuplegetter(place, f"Alias for field number {place}")
        body |= {"__slots__": (), "_fields": fields, "__match_args__": fields}
        body |= {"_field_defaults": defaults, "__signature__": _Signature()}
        return type(name, (_Record,), body)


NamedTuple: Any = type.__new__(_Maker, "NamedTuple", (), {})
