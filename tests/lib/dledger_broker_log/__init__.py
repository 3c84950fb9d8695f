"""Random logs of brokers for tests, with a simple model of the state that follows from them."""
