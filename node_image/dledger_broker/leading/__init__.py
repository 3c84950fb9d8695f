"""What only the leader does: it stamps messages, and writes changes of the broker's state."""
