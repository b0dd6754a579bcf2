"""Artifacts of tools, outputs of agents, and the URLs that name them."""
