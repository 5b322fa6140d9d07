"""From a metric's question to a typed answer.

Four words have one meaning each here. A *response* is what came back over HTTP. A *completion* is the model's text in it,
with its token usage. A *reply* is a completion as the record that is stored under the question's key (`Call`). An *answer*
is the typed value that is parsed from a reply.

From the bottom up: `capabilities`, `model_names`, `redaction` and `settings` describe a judge; `cache_key` names a
question; `clients` send one HTTP request; `limits` decide when it may be sent again; `transports` get a reply, live or from
stored ones; `replies` parse it; `session` caches and shares replies; `case_judge` is what a metric sees. `heuristic` is a
judge without a model, which reads the values of a question by `value_roles`.
"""
