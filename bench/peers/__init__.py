"""This project beside Kafka, NATS JetStream and etcd, in one run: `python -m bench.peers`.

`peer.py` says what a peer is: a group of three members, and a client in the peer's own language
that answers the requests of `client.py`. The modules `kafka`, `nats`, `etcd` and `dledger` are the
four peers; `dledger_program` is this project's client program, and the folders `java` and `go` hold
the others. `measurements.py` has the measurements, which are the same for all peers, `gaps.py` and
`processor.py` what they count, and `report.py` the table and the JSON.

What does not belong here: building the peers (`tools/peer_programs.py`).
"""
