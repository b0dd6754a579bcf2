"""Storage: one interface, and the engines that implement it."""

SLACK_MS = 1_000  # by which a clock may be set back before leases end
