"""A pool that survives `kill -9`: processes share jobs, some are killed, and every job is done.

Run `python pool.py`. It takes some seconds, and leaves nothing behind.
"""

import multiprocessing
import sys
import tempfile
import time

import eventq

JOBS, WORKERS, KILLS = 30, 3, 5
TERMS = {"lease": 2.0, "max_attempts": 100}  # a killed worker's job is free after two seconds


def work(path):
    """Do jobs, in a process of its own, until it is killed."""
    worker = eventq.Worker(path)

    @worker.consumer("pool", **TERMS)
    def do(event):
        time.sleep(0.1 + int(event.content) % 4 / 10)  # your work goes here; it may be done twice

    worker.run()


def start(path):
    """Start a worker."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=(path,), daemon=True)
    process.start()
    return process


def kill_one(workers, claims):
    """Kill a worker that is at work, with SIGKILL: it has no time to clean up."""
    busy = {claim.worker.rpartition(":")[2] for claim in claims}
    for victim in [one for one in workers if str(one.pid) in busy][:1]:
        victim.kill()
        victim.join()
        workers.remove(victim)


def main():
    """Push jobs, kill workers while jobs are left, and print what happened; 1 if a job was lost."""
    with tempfile.TemporaryDirectory() as folder, eventq.open(f"{folder}/t", create=True) as thread:
        thread.subscribe("pool", **TERMS)
        thread.push_many(("main", "job", str(number)) for number in range(JOBS))
        workers, started = [], 0
        while (found := thread.status().consumers[0]).pending:
            if workers and not any(one.is_alive() for one in workers):
                sys.exit("the workers have failed")
            while len(workers) < WORKERS:
                workers.append(start(thread.path))
                started += 1
            if started < WORKERS + KILLS:
                kill_one(workers, thread.claims("pool"))
            time.sleep(0.2)
        for one in workers:
            one.terminate()  # SIGTERM lets a worker end by itself
            one.join()
    print(f"jobs: {JOBS}, kills: {started - WORKERS}, repeats: {found.failed}")
    if found.done < JOBS:
        sys.exit(f"only {found.done} jobs were done")
    print("every job was done")


if __name__ == "__main__":
    main()
