"""Fixtures of the crash tests."""

from tests.race.support import box

__all__ = ["box"]
