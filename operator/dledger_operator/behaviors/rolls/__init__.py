"""Rolling out what the spec asks for: which pods are replaced, in which order, and when."""
