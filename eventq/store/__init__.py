"""Storage: one interface, and the engines that implement it."""

SLACK_MS = 1_000  # by which a clock may be set back before leases end
# The states of a row of `unfinished`, as databases keep them. How an event moves through them is in
# `store.queue_rules`; they are here for statements of modules that a push imports.
LEASED, WAITING, HELD, STALLED = range(4)
DEAD = 4  # of what is a row of `dead_letters` instead, for who reads both
