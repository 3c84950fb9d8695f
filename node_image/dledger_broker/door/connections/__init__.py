"""Connections of clients, and the sockets that accept them; nothing of what they ask."""
