"""Reconciling the objects that a group owns: which exist, which are applied, and why one is not."""
