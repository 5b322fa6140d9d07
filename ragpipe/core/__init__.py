"""What every room may import: the nouns (Sample, Output, Case, Score, Call, Usage), errors, strict JSON, text and its rules.

Begin with `sample`. `errors` has what is raised on purpose, `registry` what features bring by kind and name.
"""
