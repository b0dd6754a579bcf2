"""The numbered SQL files of `migrations/<engine>/`."""

from __future__ import annotations

import os


def folder(engine: str) -> str:
    """Return the folder of the migrations: in an installed package, or beside it in a checkout."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    inside = os.path.join(here, "migrations")
    beside = os.path.join(os.path.dirname(here), "migrations")
    return os.path.join(inside if os.path.isdir(inside) else beside, engine)


def files(engine: str) -> list[tuple[int, str]]:
    """Return number and path of every migration, in order."""
    place = folder(engine)
    names = sorted(name for name in os.listdir(place) if name.endswith(".sql"))
    return [(int(name.split("_", 1)[0]), os.path.join(place, name)) for name in names]
