"""Developer tools, run from the repository's root. None of them are shipped."""
