"""A thread for agents that speak MCP, the Model Context Protocol: its tools and resources."""
