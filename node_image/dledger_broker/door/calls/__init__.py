"""One request of a client, its answer, and the part that answers it."""
