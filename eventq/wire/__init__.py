"""What goes over a connection: frames of requests, and of the replies to them."""
