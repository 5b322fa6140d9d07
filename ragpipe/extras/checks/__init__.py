"""Checks of a judge: cases of a finished run, changed or not, are judged again and held against an expectation.

- `selftest`: cases changed in known directions; which scores notice?
- `judge_audit`: attacks through what the judge reads, and probes for its bias.
- `spot_check`: some cases as they are, before a second judge.
- `drift`: a canary set, before the same judge again.
"""

from __future__ import annotations

ENTRIES = {"task": {name: f"ragpipe.extras.checks.{name}" for name in ("drift", "judge_audit", "selftest", "spot_check")}}
HELP = {
    "trust the judge": {
        "spot_check": "some cases of RUN by a second judge: do they disagree?",
        "judge_audit": "is the judge led by what it reads? attacks, probes for bias",
        "selftest": "would metrics and judge notice? cases changed in known ways",
        "drift": "does the judge still give the verdicts that it gave?",
    }
}
"""What `--help` says."""
