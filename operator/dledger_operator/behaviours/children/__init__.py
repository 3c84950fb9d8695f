"""Reconciling the objects that a group owns, and finding out how the group was founded."""
