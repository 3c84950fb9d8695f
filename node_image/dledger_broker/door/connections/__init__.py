"""Connections of clients, and the sockets that accept them; nothing about their requests."""
