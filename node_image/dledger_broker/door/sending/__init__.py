"""Requests that store messages, at the leader: sends, and messages that consumers return."""
