"""A real Kubernetes API for tests: a temporary etcd and API server on loopback.

No controller, scheduler or node runs: the server only validates, stores and serves objects. Tests
that need running pods belong in tests/e2e.
"""
