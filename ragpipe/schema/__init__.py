"""The nouns: what a sample, an output, a case, a payload, a call and a score are. No input or output happens here."""
