"""Fixtures of the race tests."""

from tests.race.support import box

__all__ = ["box"]
