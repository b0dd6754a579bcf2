"""The benchmark: eventq beside the raw limit of the machine and beside other queues on SQLite, in one run.

`python -m bench` runs everything and writes `bench/RESULTS.md`; `python -m bench library --quick` runs one part with small
sizes. Everything that is compared is measured in turns, round by round, so that a machine that slows down slows all of it
down; a ratio is the median of the ratios within the rounds.
"""
