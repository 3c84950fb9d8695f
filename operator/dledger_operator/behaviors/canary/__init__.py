"""Tests with canaries: a tiny append and read through the master Service, at intervals."""
