"""From a metric's question to a typed answer.

Four words have one meaning each here. A *response* is what came back over HTTP. A *completion* is the model's text in it,
with its token usage. A *reply* is a completion as the record that is stored under the question's key (`Call`). An *answer*
is the typed value that a metric gets.

`session` is the door: it answers from the store, or asks a transport once. `case_judge` is what a metric sees. A judge of
your own is a settings class (`question.AnyJudge`) under the kind `judge` of the registry (`docs/adding-a-metric.md`).
"""
