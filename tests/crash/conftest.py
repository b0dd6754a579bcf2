"""Fixtures of the crash tests."""

from tests.crash.support import vfs
from tests.race.support import box

__all__ = ["box", "vfs"]
