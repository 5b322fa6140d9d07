"""Checks of a judge: cases of a finished run, changed or not, are judged again and held against an expectation.

- `selftest`: cases changed in known directions; which scores notice?
- `judge_audit`: attacks through what the judge reads, and probes for its bias.
- `spot_check`: some cases as they are, before a second judge.
- `drift`: a canary set, before the same judge again.
"""

from __future__ import annotations

ENTRIES = {"task": {name: f"ragpipe.extras.checks.{name}" for name in ("drift", "judge_audit", "selftest", "spot_check")}}
HELP = """\
  python -m ragpipe task=spot_check run=my judge=llm       some of its cases by a second judge: do they disagree?
  python -m ragpipe task=judge_audit run=my judge=llm      is the judge led by what it reads? attacks, probes for bias
  python -m ragpipe task=selftest run=my                   would metrics and judge notice? cases changed in known ways
  python -m ragpipe task=drift judge=llm judge.model=...   does the judge still give the verdicts that it gave?
"""
"""The lines of `--help`."""
