"""Vectors of texts by models of this process: MiniLM in NumPy, without torch (`docs/embeddings.md`)."""
