"""Helpers for tests of a member's store: write and read whole stores, and damage their files."""
