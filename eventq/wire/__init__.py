"""The binary protocol: requests, replies, the server and the client."""
