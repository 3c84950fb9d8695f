"""Leases: which process of the operator does what, and in which namespaces."""
