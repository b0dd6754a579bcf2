"""`python -m bench [PART...] [--quick]`: run the benchmark and print a Markdown table; a full run writes RESULTS.md."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from bench.machine import facts
from bench.report import HEAD
from bench.rounds import Plan

if TYPE_CHECKING:
    from types import FrameType

    from bench.report import Row

PARTS = (
    "startup",
    "library",
    "concurrent",
    "latency",
    "scale",
    "queue",
    "bulk",
    "indexes",
    "turns",
    "packs",
    "runs",
    "output",
    "wire",
    "http",
    "crowd",
    "pages",
    "postgres",
    "remote",
)
RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
NOTES = """
Bare numbers drift with the machine; ratios hold. Rates are events a second, payloads 200 bytes unless said. "FULL" and "NORMAL"
are SQLite's `synchronous`, always with a WAL; FULL is what eventq does unless told otherwise. The raw limit is bare apsw on the
same tables, measured in the same rounds; a ratio is the median of the ratios within the rounds. eventq does more per push than
the raw limit: it checks its input, keeps `events.jsonl` and a journal, and looks who is to be woken.
"""


def main() -> int:
    """Run the parts that were asked for; a target that is missed is said in the table and is no error."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=", ".join(PARTS) + "; all without any"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="2 rounds and small sizes: shows that it works, no more",
    )
    asked = parser.parse_args()
    if unknown := sorted(set(asked.parts) - set(PARTS)):
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for name in [name for name in os.environ if name.startswith("EVENTQ_")]:
        del os.environ[name]
    os.environ["EVENTQ_NOTIFIER"] = (
        "none"  # where wake-ups are measured, they are switched on for as long
    )
    signal.signal(signal.SIGTERM, _stop)
    plan = Plan(quick=asked.quick)
    try:
        return _run(plan, [part for part in PARTS if not asked.parts or part in asked.parts])
    finally:
        shutil.rmtree(plan.folder, ignore_errors=True)


def _stop(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def _run(plan: Plan, parts: list[str]) -> int:
    start = time.monotonic()
    text = ["# Benchmark", "", *(f"- {fact}" for fact in facts(plan.folder)), ""]
    if plan.quick:
        text[-1:] = ["- Quick run: the numbers mean little", ""]
    print("\n".join(text), flush=True)
    rows: list[Row] = []
    for part in parts:
        head = ["", f"## {part}", "", HEAD] if part != parts[0] else [f"## {part}", "", HEAD]
        print("\n".join(head), flush=True)
        text += head
        for row in import_module(f"bench.{part}").run(plan):
            print(row, flush=True)
            text.append(str(row))
            rows.append(row)
        plan.clear()
    missed = sum(row.met is False for row in rows)
    end = f"{sum(row.met is not None for row in rows)} targets, {missed} missed; {time.monotonic() - start:.0f} seconds."
    print(f"\n{end}")
    if parts == list(PARTS) and not plan.quick:
        RESULTS.write_text("\n".join([*text, "", end, NOTES.rstrip(), ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
