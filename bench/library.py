"""The library in one process: push, push_many and pop, against bare apsw and against the peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.contestants import BATCH, Contestant, Eventq, Raw
from bench.peers import PEERS, installed
from bench.report import Row, Sample, versus
from bench.rounds import rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.rounds import Plan


def run(plan: Plan) -> Iterator[Row]:
    """Measure FULL, NORMAL, then reading."""
    faults = installed(plan.place)
    for synchronous in ("full", "normal"):
        stores = _open(plan, faults, synchronous)
        stores["eventq, EVENTQ_NOTIFIER=none"] = Eventq(plan.place("none"), synchronous, "none")
        yield from _push(plan, stores, faults, synchronous)
        yield from _batch(plan, stores, faults, synchronous)
        for store in stores.values():
            store.close()
        plan.clear()
    yield from _consume(plan, faults)


def _open(plan: Plan, faults: dict[str, str], synchronous: str) -> dict[str, Contestant]:
    stores: dict[str, Contestant] = {
        "raw": Raw(plan.place("raw"), synchronous),
        "eventq": Eventq(plan.place("eventq"), synchronous),
    }
    return stores | {
        name: PEERS[name](plan.place(name), synchronous)
        for name, fault in faults.items()
        if not fault
    }


def _missing(what: str, faults: dict[str, str]) -> Iterator[Row]:
    for name, fault in faults.items():
        if fault:
            yield Row(f"{what}: {name}", fault)


def _push(
    plan: Plan, stores: dict[str, Contestant], faults: dict[str, str], synchronous: str
) -> Iterator[Row]:
    count = plan.size(1_500, 200) if synchronous == "full" else plan.size(6_000, 600)
    rates = plan.take(
        {name: rate(store.push, count) for name, store in stores.items()}, rounds=plan.size(9, 2)
    )
    what = f"push, one event a commit, {synchronous.upper()}"
    least = 0.8 if synchronous == "full" else 0.5
    yield from _rows(what, rates, least)
    yield from _missing(what, faults)
    yield from _ahead(what, rates, faults, target=synchronous == "normal")


def _ahead(
    what: str, rates: dict[str, list[float]], faults: dict[str, str], *, target: bool
) -> Iterator[Row]:
    """Compare eventq with the peer that was fastest in this very run."""
    peers = {name: Sample(rates[name], "/s") for name in rates if name in faults}
    if peers:
        best = max(peers, key=lambda name: peers[name].median)
        least = 1 if target else 0
        mine = Sample(rates["eventq"], "/s")
        yield versus(
            f"{what}: eventq against the fastest peer",
            mine,
            peers[best],
            least=least,
            note=f" ({best})",
        )


def _batch(
    plan: Plan, stores: dict[str, Contestant], faults: dict[str, str], synchronous: str
) -> Iterator[Row]:
    count = plan.size(20, 3)
    able = {name: store for name, store in stores.items() if store.batches and "=" not in name}
    rates = plan.take(
        {name: rate(store.push_batches, count, count * BATCH) for name, store in able.items()},
        rounds=plan.size(9, 2),
    )
    what = f"push_many, 1,000 events a commit, {synchronous.upper()}"
    yield from _rows(what, rates, 0.5)
    for name, store in stores.items():
        if not store.batches:
            yield Row(f"{what}: {name}", "has none")
    yield from _missing(what, faults)


def _consume(plan: Plan, faults: dict[str, str]) -> Iterator[Row]:
    """Read and ack. eventq runs at FULL, as it comes: it commits acks at NORMAL by itself; all others run at NORMAL."""
    stores = _open(plan, faults, "normal")
    mine = Eventq(plan.place("full"), "full", "none")
    mine.subscribe()
    stores["eventq"].close()
    stores["eventq"] = mine
    counts = {
        name: plan.size(10_000, 2_000) if name in ("raw", "eventq") else plan.size(1_000, 200)
        for name in stores
    }
    for name, store in stores.items():
        store.fill(counts[name] * (plan.rounds + 1))
    rates = plan.take({name: rate(store.consume, counts[name]) for name, store in stores.items()})
    what = "pop of 100 and ack, events a second"
    yield from _rows(what, rates, 0.5)
    yield from _missing(what, faults)
    for store in stores.values():
        store.close()


def _rows(what: str, rates: dict[str, list[float]], least: float) -> Iterator[Row]:
    raw = Sample(rates["raw"], "/s")
    for name, values in rates.items():
        if name != "raw":
            target = least if name == "eventq" else 0
            yield versus(f"{what}: {name}", Sample(values, "/s"), raw, least=target)
