"""Text rules: refusals, answers of not knowing and policies, from versioned files or a user's own patterns.

`timed_regex` runs expressions with a time limit, `pattern_files` reads the shipped files, `pattern_input` types the
parameters that take patterns, `sentences` splits a text.
"""
