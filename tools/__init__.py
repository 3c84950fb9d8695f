"""Developer tools, run from the repository's root. Nothing here is part of what is shipped."""
