"""What a person reads: one model (`model`), rendered as terminal, Markdown and HTML; exports.

A section is a function from `report_data` to sections of the model, registered under the kind `section`.
"""
