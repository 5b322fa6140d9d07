"""For tests of metrics, judges and configurations of your own: no key, no network, no bill.

    from ragpipe.testing import OpenAIServer, ScriptedJudge, assert_gates, make_case, score_of, serving

`ScriptedJudge` gives a metric the replies that you write down; `make_case` builds a case in a line; `score_of` gives what a
run would record. `serving()` starts a local server that speaks the protocol of OpenAI, with latency, faults and a log of
its requests: point `judge.api_base` at its `url` and the whole client runs. `assert_gates` makes the gates of a run a test.
"""

from ragpipe.testing.gate_assertion import assert_gates
from ragpipe.testing.openai_server import OpenAIServer, serving
from ragpipe.testing.scripted import JudgeQuestion, ScriptedJudge, make_case, score_of, shipped_metric

__all__ = [
    "JudgeQuestion",
    "OpenAIServer",
    "ScriptedJudge",
    "assert_gates",
    "make_case",
    "score_of",
    "serving",
    "shipped_metric",
]
