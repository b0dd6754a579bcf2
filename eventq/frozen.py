"""Frozen dataclasses without start-up cost: `__init__` is compiled on first use.

The standard decorator compiles six functions per class, and its module imports `inspect`: 20 ms for
the records of eventq, while a whole `push` takes 15. Its promises are kept: frozen, slots,
equality, hash, repr, matching, pickles in the same form, `dataclasses.fields`, `asdict` and
`replace`. Type checkers read the standard one: under TYPE_CHECKING, import its names from there
and let `Record` be `object`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_UNCOMPILED = 20  # records that a class makes before its `__init__` is compiled


class field:  # noqa: N801 (the name that `dataclasses` has)
    """A field whose default is made anew for each record."""

    def __init__(self, *, default_factory: Callable[[], object]) -> None:
        self.default_factory = default_factory


def dataclass(*, frozen: bool, slots: bool) -> Callable[[type], type]:
    """Return the decorator that type checkers read; its class is made by its base, `Record`."""
    assert frozen
    assert slots
    return _checked


def _checked(cls: type) -> type:
    assert issubclass(cls, _Record), f"{cls.__name__} needs the base Record"
    return cls


def replace(record: Any, **changes: Any) -> Any:
    """Return a record with other values in some fields."""
    return record.__replace__(**changes)


class _Record:
    """The base of all records; each class has its own `__init__` and slots."""

    __slots__: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash(tuple(self.__getstate__()))

    def __getstate__(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    def __setstate__(self, state: list[Any]) -> None:
        for name, value in zip(self.__slots__, state, strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise _frozen(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise _frozen(f"cannot delete field {name!r}")

    def __replace__(self, **changes: Any) -> Any:
        return type(self)(**dict(zip(self.__slots__, self.__getstate__(), strict=True)) | changes)


class _Maker(type):
    """Make a frozen, slotted record of a class with annotated fields, at once.

    A decorator would make each class a second time: 0.1 ms for the slots of all its methods.
    """

    def __new__(cls, name: str, _: tuple[type, ...], body: dict[str, Any]) -> Any:
        names = tuple(body.get("__annotations__", ()))
        defaults = {name: body.pop(name) for name in names if name in body}
        body |= {"__slots__": names, "__match_args__": names, "__init__": _Init(defaults)}
        for standard in ("__dataclass_fields__", "__dataclass_params__"):
            body[standard] = _Standard(standard, defaults)
        return type(name, (_Record,), body)


Record: Any = type.__new__(_Maker, "Record", (), {})


def _frozen(what: str) -> AttributeError:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(what)


class _Init:
    """A placeholder for a record's `__init__` that compiles it after some calls.

    Compiling takes 0.2 ms a class, as long as filling a hundred records without; a command makes a
    few records of five classes.
    """

    def __init__(self, defaults: dict[str, Any]) -> None:
        self._defaults = defaults
        self._left = _UNCOMPILED

    def __get__(self, record: Any, cls: Any) -> Any:
        if record is not None and self._left:
            self._left -= 1
            return lambda *values, **named: self._fill(record, values, named)
        made = cls.__init__ = _init(cls, self._defaults)
        return made if record is None else made.__get__(record, cls)

    def _fill(self, record: Any, values: tuple[Any, ...], named: dict[str, Any]) -> None:
        slots = record.__slots__
        found = self._defaults | dict(zip(slots, values, strict=False)) | named
        twice = not named.keys().isdisjoint(slots[: len(values)])
        if twice or len(values) > len(slots) or found.keys() != set(slots):
            _init(type(record), self._defaults)(record, *values, **named)  # raises a TypeError
        for name, value in found.items():
            made = value.default_factory() if isinstance(value, field) else value
            object.__setattr__(record, name, made)
        if hasattr(record, "__post_init__"):
            record.__post_init__()


def _init(cls: Any, defaults: dict[str, Any]) -> Any:
    """Compile an `__init__` that sets each slot, and calls `__post_init__` where there is one."""
    scope: dict[str, Any] = {f"_set_{name}": cls.__dict__[name].__set__ for name in cls.__slots__}
    scope |= {f"_default_{name}": value for name, value in defaults.items()}
    words, lines = ["self"], []
    for name in cls.__slots__:
        value = name
        if isinstance(defaults.get(name), field):
            scope[f"_make_{name}"] = defaults[name].default_factory
            value = f"_make_{name}() if {name} is _default_{name} else {name}"
        words.append(f"{name}=_default_{name}" if name in defaults else name)
        lines.append(f" _set_{name}(self, {value})")
    lines += [" self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    exec(f"def __init__({', '.join(words)}):\n" + "\n".join(lines), scope)  # noqa: S102
    made = scope["__init__"]
    made.__annotations__ = {**cls.__annotations__, "return": "None"}
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


class _Standard:
    """A placeholder for what `dataclasses` reads; the standard decorator creates it on demand."""

    def __init__(self, name: str, defaults: dict[str, Any]) -> None:
        self._name = name
        self._defaults = defaults

    def __get__(self, _: object, cls: Any) -> Any:
        from dataclasses import make_dataclass

        kinds = cls.__annotations__.items()
        spec = [(name, kind, *self._default(name)) for name, kind in kinds]
        made: Any = make_dataclass(cls.__name__, spec, frozen=True)
        found = getattr(made, self._name)
        setattr(cls, self._name, found)
        return found

    def _default(self, name: str) -> tuple[Any, ...]:
        import dataclasses

        if name not in self._defaults:
            return ()
        default = self._defaults[name]
        if isinstance(default, field):
            return (dataclasses.field(default_factory=default.default_factory),)
        return (default,)
