"""The operator's IO: the Kubernetes API, and the members' HTTP pages and client protocol.

What belongs here: requests, timeouts, and the translation of answers into the operator's own views
and errors. Decisions belong in `behaviours`.
"""
