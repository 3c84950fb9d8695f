"""Sending a request to a member: the only network IO of the shared formats.

`dialing` opens a connection to a name; `exchange` sends one request and returns its response.
"""
