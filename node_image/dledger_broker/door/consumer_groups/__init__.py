"""Members of consumer groups, at the door of a client and at the leader; locked queues."""
