"""Audits: running each one as a Job, and creating those that a group's spec asks for."""
