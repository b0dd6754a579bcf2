"""The binary protocol: its frames, its requests, and the server that answers them."""
