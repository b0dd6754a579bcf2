"""Fixtures of the crash tests."""

from tests.crash.support import power, vfs
from tests.race.support import box

__all__ = ["box", "power", "vfs"]
