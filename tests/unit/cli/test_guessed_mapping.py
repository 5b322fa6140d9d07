"""What a file of an unknown shape may mean, by names and types that fit each other, and which metrics it allows."""

import pytest
import yaml

from ragpipe.cli.guessed_mapping import guessed_fields, names_in_file, passages_in
from ragpipe.cli.option_files import FileOrigin, choose_metrics, guessed_dataset, recorded_entries, scalar, score_names
from ragpipe.core.registry import option_files
from ragpipe.data.expressions import Expression
from ragpipe.data.settings import DatasetSettings
from ragpipe.metrics.needs import ANSWERABLE, FIELDS, DataFacts, SeenVerdicts


@pytest.mark.parametrize(("record", "guesses"), [
    ({"q": "Who?", "reply": "Ada."}, {"question": "q", "answer": "reply"}),
    ({"userInput": "Who?", "actualOutput": "Ada."}, {"question": "userInput", "answer": "actualOutput"}),
    ({"qid": 7, "query": "Who?"}, {"id": "to_string(qid)", "question": "query"}),
    ({"query": "Who?", "hits": [{"url": "a", "body": "Ada."}]}, {"question": "query", "contexts": "hits[].body"}),
    ({"query": "Who?", "passages": ["Ada."]}, {"question": "query", "contexts": "passages"}),
    ({"query": "Who?", "documents": '["Ada."]'}, {"question": "query", "contexts": "parse(documents)"}),
    ({"query": "Who?", "ground_truth": ["Ada.", "Lovelace."]}, {"question": "query", "references": "ground_truth"}),
    ({"query": "Who?", "ground_truth": "Ada."}, {"question": "query", "reference": "ground_truth"}),
    ({"turn": {"query": "Who?"}, "a b": {"response": "Ada."}}, {"question": "turn.query", "answer": '"a b".response'}),
    ({"request": '{"query": "Who?"}', "result": '{"answer": "Ada."}'}, {"question": "parse(request).query", "answer": "parse(result).answer"}),
    ({"input": '{"question": "Who?"}', "metadata": '{"contexts": ["Ada."]}'}, {"question": "parse(input).question", "contexts": "parse(metadata).contexts"}),
    ({"query": "Who?", "documents": '[{"text": "Ada."}]'}, {"question": "query", "contexts": "parse(documents)[].text"}),
    ({"query": "{braces} are what?", "reply": "[1] says so"}, {"question": "query", "answer": "reply"}),
    ({"query": {"text": "Who?"}, "hits": [{"url": "a"}], "answer": 3}, {"answer": "to_string(answer)"}),
    ({"query": "Who?", "hits": []}, {"question": "query"}),
    ({"query": "Who?", "passages": [None, "Ada."]}, {"question": "query", "contexts": "passages"}),
    ({"query": "Who?", "hits": [{"body": None}, {"body": "Ada."}]}, {"question": "query", "contexts": "hits[].body"}),
    ({"query": "Who?", "hits": [None, {"node": None}, {"node": {"text": "Ada."}}]}, {"question": "query", "contexts": "hits[].node.text"}),
    ({"note": "Who?", "value": "Ada."}, {}),
    ({"question": "Who?", "contexts": [{"id": "a", "text": "Ada."}], "answerable": True, "tags": '["x"]', "foo": 1},
     {"question": "question", "contexts": "contexts", "answerable": "answerable", "tags": "parse(tags)"}),
    ({"question": "Who?", "chunks": [{"id": "a", "text": None}]}, {"question": "question", "chunks": "chunks"}),
    ({"question": "Who?", "chunks": [{"id": "a"}], "contexts": ["Ada."]}, {"question": "question", "contexts": "contexts"}),
    ({"query": "Who?", "contexts": [{"id": 3, "text": "Ada."}], "difficulty": "hard"}, {"question": "query", "contexts": "contexts[].text"}),
    ({"meta": {"query": "deep"}, "query": "Who?"}, {"question": "query"}),  # the shallowest
])  # fmt: skip
def test_a_guess_needs_a_name_and_a_fitting_type(record, guesses):
    assert sorted((guess.field, guess.path) for guess in guessed_fields(names_in_file([record]))) == sorted(guesses.items())


def test_names_of_all_first_records_with_the_first_value_that_is_not_null():
    records = [{"a": None, "b": [{"c": 1}], "f": []}, {"a": "text", "d": {"e": True}, "f": [None]}, {"f": [None, "g"]}]
    names = {name.path: (name.kind, name.shown_example) for name in names_in_file(records)}
    assert names == {
        "a": ("text", "text"), "b": ("list of objects", '[{"c": 1}]'), "b[].c": ("number", "1"), "d": ("object", '{"e": true}'),
        "d.e": ("boolean", "true"), "f": ("list of texts", '[null, "g"]'),
    }  # fmt: skip


def test_an_example_is_cut_on_one_line_and_shows_no_key():
    secret = "sk-proj-" + "a1B2c3D4" * 5
    (name,) = names_in_file([{"x": f"line one\nline two \x1b[2J {secret} " + "x" * 200}])
    assert name.shown_example.startswith("line one line two \\x1b[2J ")
    assert secret not in name.shown_example
    assert len(name.shown_example) <= 63


@pytest.mark.parametrize("text", [
    "id", "a.b[].c", "here:../../x.jsonl", '"a b".c', "parse(x)", "true", "No", "7", "a: b", "#x", "", "é", "x:", """it's "a b".c""",
    '"a\\n".c',
])  # fmt: skip
def test_a_written_text_is_read_back_as_it_is(text):
    assert yaml.safe_load(f"key: {scalar(text)}   # a comment") == {"key": text}


@pytest.mark.parametrize("record", [
    {"q": "Who?", "reply": "Ada.", 'odd "name" é': "x: y # z", "{}": [{"text": "#"}]},
    {"query": "Who?", "documents": [{"content": "c"}], "id": 3},
])  # fmt: skip
def test_what_is_written_is_a_mapping_that_can_be_read(record):
    names = names_in_file([record])
    text = guessed_dataset("my", FileOrigin("a.jsonl", "here:../../a.jsonl", ""), names, guessed_fields(names))
    plain = yaml.safe_load(text)
    plain["fields"] = {field: path for field, path in plain["fields"].items() if path != "???"}
    assert DatasetSettings.model_validate(plain).fields.keys() >= {"question"}
    for name in names:
        assert name.path in text


@pytest.mark.parametrize(("record", "fields"), [
    ({"note": "Who?"}, {"question": "???", "answer": "???", "contexts": "???"}),
    ({"note": "Who?", "reply": "Ada."}, {"question": "???", "answer": "reply", "contexts": "???"}),
    ({"query": "Who?", "passages": ["Ada."]}, {"question": "query", "answer": "???", "contexts": "passages"}),
    ({"query": "Who?", "reply": "Ada."}, {"question": "query", "answer": "reply"}),
])  # fmt: skip
def test_what_no_name_suggests_is_left_to_fill_in(record, fields):
    """Where a question and an answer are guessed, nothing is: the file can be run without contexts."""
    names = names_in_file([record])
    text = guessed_dataset("my", FileOrigin("a.jsonl", "a.jsonl", ""), names, guessed_fields(names))
    assert yaml.safe_load(text)["fields"] == fields


@pytest.mark.parametrize(("record", "path"), [
    ({"frage": "Who?", "KB Snips": '[{"titel": "a", "text": "Ada."}]'}, 'parse("KB Snips")[].text'),
    ({"schnipsel": '["Ada."]'}, "parse(schnipsel)"),
    ({"schnipsel": ["Ada."]}, "schnipsel"),
    ({"treffer": [{"url": "a", "body": "Ada."}]}, "treffer[].body"),
    ({"quellen": [{"titel": "a", "inhalt der": "Ada"}, {"titel": "a"}]}, ""),
    ({"treffer": [{"url": "a"}], "n": "[1] says so", "zahlen": "[1, 2]"}, ""),
    ({"quellen": [{"titel": "a", "KB inhalt": "Ada wrote it."}]}, 'quellen[]."KB inhalt"'),  # the longest text of several words
])  # fmt: skip
def test_the_first_list_of_texts_may_be_the_contexts(record, path):
    names = names_in_file([record])
    assert passages_in(names) == path
    text = guessed_dataset("my", FileOrigin("a.csv", "a.csv", ""), names, guessed_fields(names))
    (line,) = [line for line in text.splitlines() if line.startswith("  contexts: ???")]
    assert line.endswith(f"; perhaps {path}") == bool(path)
    assert not path or Expression(path)(record)[0].startswith("Ada")


def _seen(*verdicts):
    seen = SeenVerdicts()
    for verdict in verdicts:
        seen.add(verdict)
    return seen


def _entry(name, *verdicts, option="ragas"):
    (entry,), left_out = recorded_entries({name: _seen(*verdicts)}, option, ())
    assert left_out == []
    return entry


@pytest.mark.parametrize(("verdicts", "scale"), [
    ((0.2, 0.9), (0, 1)), ((0, 1), (0, 1)), ((1, 3, 5), (1, 5)), ((0, 4), (0, 5)), ((2, 5), (1, 5)), ((0, 7.5), (0, 10)),
    ((12, 88), (0, 100)), ((-1, 0.5), None), ((3, 400), None),
])  # fmt: skip
def test_the_scale_is_the_narrowest_that_holds_every_value(verdicts, scale):
    assert _entry("x", *verdicts).scale == scale


def test_only_true_and_false_are_binary_and_ones_and_zeros_are_not():
    assert _entry("x", True, False).is_binary
    assert not _entry("x", 1, 0).is_binary
    assert not _entry("x", True, 0.5).is_binary


@pytest.mark.parametrize(("names", "option", "is_good"), [
    (["harmfulness", "Hallucination", "toxicity", "Bias [GEval]", "maliciousness", "noise_sensitivity_in_relevant", "latency", "PIILeakage"], "ragas", False),
    (["faithfulness", "answer_relevancy", "correctness", "unbiased", "score"], "ragas", True),
    (["hallucination_score"], "open_rag_eval", True),  # 1 says that nothing is hallucinated
])  # fmt: skip
def test_whether_high_is_good_is_told_by_the_name(names, option, is_good):
    assert {_entry(name, 0.5, option=option).higher_is_better for name in names} == {is_good}


def test_a_name_that_is_taken_gets_the_name_of_the_tool():
    verdicts = {"faithfulness": _seen(0.5), "Correctness [GEval]": _seen(0.5), "correctness_geval": _seen(1)}
    entries, _ = recorded_entries(verdicts, "deepeval", {"faithfulness"})
    names = {entry.source: entry.score for entry in entries}
    assert names["faithfulness"] == "deepeval_faithfulness"
    assert names["Correctness [GEval]"] == "correctness_geval"
    assert names["correctness_geval"] == "deepeval_correctness_geval"


def test_what_holds_no_number_is_left_out_with_the_reason():
    verdicts = {"a": _seen(None), "b": _seen({"unreadable": "good"}), "c.d": _seen(1), "e": _seen(1, None, {"unreadable": "x"})}
    entries, left_out = recorded_entries(verdicts, "ragas", ())
    assert [(entry.source, entry.seen) for entry in entries] == [("e", "seen: 1 to 1 in 1 verdict, 1 unreadable")]
    assert [line.split(":")[0] for line in left_out] == ["a", "b", "c.d"]
    assert "no verdict was given" in left_out[0]
    assert "no verdict is a number" in left_out[1]


@pytest.mark.slow
def test_metrics_are_chosen_by_what_the_answers_have():
    choice = choose_metrics(DataFacts(["answer", "contexts", "reference"]))
    assert {"faithfulness", "groundedness", "context_recall"} <= set(choice.chosen)
    assert "chunk_faithfulness" not in choice.chosen, "what a single chunk says is easily misread"
    assert choice.left_out["correctness"] == "a language model"
    assert choice.left_out["semantic_similarity"] == "an embedder"
    assert choice.left_out["citation"] == "citations"
    choice = choose_metrics(DataFacts(["answer", "contexts"]))
    assert choice.left_out["context_recall"] == "reference"
    assert choice.left_out["correctness"] == "a language model, reference"


@pytest.mark.slow
def test_a_metric_that_the_embedded_judge_answers_in_part_is_chosen_where_it_tells_something():
    """It grades passages by the reference answer alone: without one a language model must."""
    facts = DataFacts(["answer", "contexts"])
    bare = next(field for field in FIELDS if field.name == "reference").without(ANSWERABLE)
    assert choose_metrics(facts, [bare, bare]).left_out["context_precision"] == "a language model"
    assert "faithfulness" in choose_metrics(facts, [bare, bare]).chosen
    assert "context_precision" in choose_metrics(facts, [bare, ANSWERABLE]).chosen


@pytest.mark.slow
def test_every_shipped_metric_is_chosen_or_left_out_with_a_need_and_its_scores_are_taken():
    shipped = set(option_files("metrics")) - {"recorded", "chunk_faithfulness", "chunk_relevancy", "one_chunk_suffices"}
    choice = choose_metrics(DataFacts())
    assert set(choice.chosen) | set(choice.left_out) == shipped
    assert not set(choice.chosen) & set(choice.left_out)
    assert all(choice.left_out.values())
    assert {"faithfulness", "overall_score", "ragas_score", "hit@5"} <= score_names()
