"""A small RAG system over a folder of Markdown, as an example and to try an evaluation on.

Lexical retrieval over sections, extractive answers with citations, refusals by stated rules, and faults that can be switched on. It
needs no model and no network, and the same question always gets the same answer.
"""
