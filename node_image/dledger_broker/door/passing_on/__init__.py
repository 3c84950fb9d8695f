"""How requests reach the leader: where they wait, in what order, and how the leader takes them."""
