"""One request of a client: its answer, and who gives it."""
