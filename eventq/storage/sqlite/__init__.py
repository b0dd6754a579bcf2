"""The engine on SQLite: a file for each thread, through apsw."""

import sys


def _import_driver() -> None:
    """Import apsw without the package `collections`, where nothing else has imported it yet.

    apsw needs one class of it, and the package takes as long to import as an eighth of a push.
    Nearly every program has it by then, as has every program with threads: only the command line
    comes here without. A version of apsw that asks for more is imported as usual, later.
    """
    if "collections" in sys.modules:
        return
    import _collections_abc

    stand_in = dict.fromkeys(("collections", "collections.abc"), _collections_abc)
    sys.modules.update(stand_in)
    try:
        import apsw  # noqa: F401
    except (ImportError, AttributeError):
        pass
    finally:
        for name in stand_in:
            del sys.modules[name]


_import_driver()
