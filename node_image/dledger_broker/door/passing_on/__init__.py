"""The way of requests to the leader, and what arrives there; where they wait, and their order."""
