"""The node's HTTP: status, leader long poll, probes, metrics and the read-only view for auditors.

What belongs here: routes and their encodings, and what a member says of itself. Pages ask the
server through `pages.Source`; nothing here changes what the node does.

    pages    the routes
    status   what a member in service says of itself
    outage   what a member out of service says of itself
    metrics  Prometheus metrics
    doors    limits on HTTP connections
"""
