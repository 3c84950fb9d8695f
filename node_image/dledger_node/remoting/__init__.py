"""Bytes between members, and between clients and members.

What belongs here: connections, their limits, and the translation of frames into the core's messages
and into client requests. Who may lead, what is stored and what is acknowledged is decided
elsewhere.
"""
