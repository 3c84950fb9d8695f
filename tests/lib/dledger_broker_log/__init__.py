"""Logs of brokers for tests: random ones with a simple model of what follows from them."""
