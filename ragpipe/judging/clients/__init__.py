"""One HTTP request to a provider, and what its response means. Clients never retry, wait or count."""
