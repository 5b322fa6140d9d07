"""How a question gets its reply: live from a provider, or from stored replies alone."""
