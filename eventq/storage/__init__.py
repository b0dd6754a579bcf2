"""Storage: one interface, and the engines that implement it."""
