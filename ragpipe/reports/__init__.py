"""Reports: what a person reads of a run. They read its tables and never judge.

`report_data` holds what is read of a run; `sections` makes one section each of it; `build` puts them in order as the
`model.Report` that `render` prints as terminal and Markdown, and `run_page` as `report.html`. `exports` writes tables and JUnit for other programs.
"""
