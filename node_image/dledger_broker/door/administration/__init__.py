"""Requests of administrators: changes of topics and groups, and whole tables."""
