"""What a run gives: samples, rows with their targets, and the Markdown table."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HEAD = (
    "| what | measured: median (min-max) | raw limit | ratio | target | met?"
    " |\n|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of one thing, one a round."""

    values: Sequence[float]
    unit: str

    @property
    def median(self) -> float:
        """The value in the middle."""
        return median(self.values)

    def __str__(self) -> str:
        """Return median, lowest and highest."""
        low, high = min(self.values), max(self.values)
        if low == high:
            return f"{figure(low)} {self.unit}".strip()
        return f"{figure(self.median)} ({figure(low)}-{figure(high)}) {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `met` is None where there is no target."""

    what: str
    measured: Sample | str
    raw: Sample | str = ""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None

    def __str__(self) -> str:
        """Return the line in Markdown."""
        ratio = "" if self.ratio is None else f"{self.ratio:.2f} x"
        met = "" if self.met is None else "yes" if self.met else "**no**"
        return f"| {self.what} | {self.measured} | {self.raw} | {ratio} | {self.target} | {met} |"


def versus(
    what: str, measured: Sample, raw: Sample, *, least: float = 0, most: float = 0, note: str = ""
) -> Row:
    """Compare two samples taken in turns; `least` or `most` is the target for the ratio."""
    pairs = zip(measured.values, raw.values, strict=True)
    ratio = median(one / max(other, 1e-9) for one, other in pairs)
    return Row(what, measured, f"{raw}{note}", ratio, *_judge(ratio, least, most, "x"))


def alone(
    what: str, measured: Sample, raw: Sample | str = "", *, least: float = 0, most: float = 0
) -> Row:
    """Judge a sample by itself; `least` or `most` is the target for its median."""
    return Row(what, measured, raw, None, *_judge(measured.median, least, most, measured.unit))


def _judge(value: float, least: float, most: float, unit: str) -> tuple[str, bool | None]:
    if least:
        return f"≥ {least:,g} {unit}".strip(), value >= least
    if most:
        return f"≤ {most:,g} {unit}".strip(), value <= most
    return "", None


def figure(value: float) -> str:
    """Return a number with three significant digits and thousands set apart."""
    if value >= 1_000:
        return f"{value:,.0f}"
    for edge, digits in ((100, 0), (10, 1), (1, 2)):
        if value >= edge:
            return f"{value:.{digits}f}"
    return f"{value:.3f}"


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value that a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
