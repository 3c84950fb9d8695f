"""Audits: the Job of each one, and those that a group asks for by itself."""
