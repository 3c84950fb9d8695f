"""Requests to the leader: what a response means, and when a request may be resent.

`call` does no IO. `dispatcher` sends calls to the current leader.
"""
