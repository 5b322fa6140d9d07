"""A judge compared with its own earlier verdicts: the canary set, the baseline, and the rule by which a judge has drifted."""
