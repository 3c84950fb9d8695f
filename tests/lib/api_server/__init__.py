"""A real Kubernetes API for tests: etcd and the API server on loopback, thrown away afterwards.

No controller, scheduler or node runs: objects are checked, stored and served, and nothing happens
to them. Tests that need pods to run belong in tests/e2e.
"""
