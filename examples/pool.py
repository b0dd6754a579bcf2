"""A pool that survives `kill -9`: processes share jobs, some are killed, and every job is done.

Run `python pool.py`. It takes some seconds, and leaves nothing behind.
"""

import multiprocessing
import random
import sys
import tempfile
import time

import eventq

ROUNDS, JOBS, WORKERS = 5, 6, 3  # each round pushes so many jobs, and kills one worker
TERMS = {"lease": 2.0, "max_attempts": 100}  # a killed worker's job is free after two seconds


def work(folder):
    """Do jobs, in a process of its own, until it is killed."""
    worker = eventq.Worker(f"{folder}/thread")

    @worker.consumer("pool", **TERMS)
    def do(event):
        note(folder, f"began {event.content}")
        time.sleep(random.uniform(0.1, 0.4))  # your work goes here; it may be done twice
        note(folder, f"ended {event.content}")

    worker.run()


def note(folder, line):
    """Write down what a worker does, to be counted at the end."""
    with open(f"{folder}/notes", "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def start(folder):
    """Start a worker."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=work, args=(folder,), daemon=True)
    process.start()
    return process


def kill_one(workers, claims):
    """Kill a worker, if possible one at work, with SIGKILL: it has no time to clean up."""
    busy = {claim.worker.rpartition(":")[2] for claim in claims}
    victim = random.choice([one for one in workers if str(one.pid) in busy] or workers)
    victim.kill()
    victim.join()
    workers.remove(victim)


def run(folder):
    """Push jobs and kill workers, then wait until no job is left, or a worker has failed."""
    with eventq.open(f"{folder}/thread", create=True) as thread:
        thread.subscribe("pool", **TERMS)
        workers = [start(folder) for _ in range(WORKERS)]
        for turn in range(ROUNDS):
            thread.push_many(("main", "job", f"{turn}.{number}") for number in range(JOBS))
            time.sleep(random.uniform(0.2, 1))
            kill_one(workers, thread.claims("pool"))
            workers.append(start(folder))
        while thread.info().subscriptions[0].pending and all(one.is_alive() for one in workers):
            time.sleep(0.1)
    for one in workers:
        one.terminate()  # SIGTERM lets a worker end by itself
        one.join()


def main():
    """Run the pool and print what happened; exit with 1 if a job was lost."""
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
        with open(f"{folder}/notes", encoding="utf-8") as notes:
            lines = notes.read().splitlines()
    began = [line for line in lines if line.startswith("began")]
    ended = {line for line in lines if line.startswith("ended")}
    print(f"jobs: {ROUNDS * JOBS}, kills: {ROUNDS}, repeats: {len(began) - len(set(began))}")
    if len(ended) < ROUNDS * JOBS:
        sys.exit(f"only {len(ended)} jobs were done")
    print("every job was done")


if __name__ == "__main__":
    main()
