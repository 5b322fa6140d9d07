"""`report.html`: a run as one page to look at: what the sections of its report say (`front`), and its cases."""
