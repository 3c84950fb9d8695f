"""Clients of consumer groups, at their door and at the leader; locked queues."""
