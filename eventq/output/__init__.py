"""What was produced: artifacts of tools, outputs of agents, and the URLs that name them."""
