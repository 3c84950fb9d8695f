"""The node's HTTP: status, leader long poll, probes, metrics and the read-only view for auditors.

What belongs here: routes and their encodings. Everything that they show is asked of the server
through `pages.Source`; nothing here changes what the node does.
"""
