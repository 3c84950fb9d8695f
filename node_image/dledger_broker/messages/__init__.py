"""Requests turned into messages: which sends are accepted, and the records that they become.

Everything here is pure: no clock, socket, randomness or file.
"""
