"""Vectors of texts: NumPy MiniLM without torch, providers through litellm, sentence-transformers (`docs/embeddings.md`)."""
