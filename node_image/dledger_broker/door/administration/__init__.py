"""What administrators ask: changes of topics and groups, and whole tables."""
