"""Requests on their way to the leader: what an answer means, and when to send a request again.

`call` is pure. `dispatcher` carries calls to the leader, wherever it moves.
"""
