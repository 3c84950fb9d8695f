"""The operator's IO: the Kubernetes API, and the members' HTTP API and DLedger protocol.

Requests, timeouts and the translation of answers into the operator's own types and errors belong
here. Decisions belong in `behaviors`.
"""
