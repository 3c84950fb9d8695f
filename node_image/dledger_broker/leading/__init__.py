"""The work of the leader alone: it stamps messages, and writes changes of the broker's state."""
