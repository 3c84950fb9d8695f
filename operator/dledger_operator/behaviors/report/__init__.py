"""Reporting to users: a group's status and its Events."""
