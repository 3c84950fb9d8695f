"""The node's HTTP: status, leader long poll, probes, metrics and the read-only view for auditors.

This package holds the routes, their encodings, and the reports of a member about itself. The routes
get their data from a `pages.Source`; nothing here changes the state of the node.

    pages    the routes
    status   the reports of a member in service
    outage   the reports of a member out of service
    metrics  Prometheus metrics
    families, process_metrics  metrics of a member from values, and those of its process
    auditors  requests for the log and the state, which need a token
    byte_ranges, file_answers  answers with a range of a segment, or with a file
    connection_limits  limits on HTTP connections
    places   limits on requests that take long: waits for another leader, and files
    request_turns  how many requests a turn of the event loop handles
    deputy   answers probes while the event loop waits for the disk
"""
