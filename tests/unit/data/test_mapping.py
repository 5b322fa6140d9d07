"""The mapping language, a shape at a time."""

import json

import pytest
import yaml
from pydantic import ValidationError

from ragpipe.core.errors import DataError
from ragpipe.core.resources import conf_dir
from ragpipe.data.expressions import BadExpression, Expression
from ragpipe.data.record_mapping import RecordMapping
from ragpipe.data.settings import DatasetSettings, FieldMap

BASE = {"id": "id", "question": "q"}


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize(("record", "explode", "method", "answer", "outputs"), [
    ({"answers": [{"m": "x", "t": "1"}, {"m": "y", "t": "2"}]}, {"one": "answers"}, "one.m", "one.t", ["x:1", "y:2"]),
    ({"answers": []}, {"one": "answers"}, "one.m", "one.t", [None]),
    ({"by": {"x": "1", "y": "2"}}, {"one": "by"}, "one.key", "one.value", ["x:1", "y:2"]),
    ({"left": "3", "right": "4"}, {"one": "[{key: 'l', value: left}, {key: 'r', value: right}]"}, "one.key", "one.value", ["l:3", "r:4"]),
    # two of them give every pair, whichever is named first
    ({"runs": [{"n": "r1", "out": ["1", "2"]}, {"n": "r2", "out": ["3"]}]}, {"text": "run.out", "run": "runs"},
     "join('/', [run.n, text])", "text", ["r1/1:1", "r1/2:2", "r2/3:3"]),
])  # fmt: skip
def test_explode_sees_each_element_beside_its_parent(read_file, record, explode, method, answer, outputs):
    fields = {**BASE, "method": method, "answer": answer}
    found = read_file({"d.jsonl": lines({"id": "s1", "q": "a", **record})}, explode=explode, fields=fields)
    assert [r.output and f"{r.output.method}:{r.output.answer}" for r in found] == outputs
    assert {(r.sample.id, r.where) for r in found} == {("s1", "d.jsonl:1")}


def test_join_one_many_and_inside_the_elements_of_a_list(read_file):
    files = {
        "q.jsonl": lines({"id": 1, "q": "a", "docs": [{"d": "d2"}, {"d": "d1"}]}, {"id": 2, "q": "b", "docs": []}),
        "gold.csv": "id,gold\n1,yes\n",
        "answers.json": json.dumps([{"id": "1", "m": "x", "t": "1"}, {"id": "1", "m": "y", "t": "2"}]),
        "corpus.jsonl": lines({"key": "d1", "text": "one"}, {"key": "d2", "text": "two"}),
    }
    found = read_file(
        files,
        files={"main": "q.jsonl", "gold": "gold.csv", "answers": "answers.json", "corpus": "corpus.jsonl"},
        # written in an order in which they could not be made
        explode={"one": "answers"},
        join={
            "answers": {"file": "answers", "by": "id", "key": "id", "many": True},
            "passages": {"each": "docs", "file": "corpus", "by": "key", "key": "d", "as": "match"},
            "gold": {"file": "gold", "by": "id", "key": "id"},
        },
        fields={
            "id": "to_string(id)", "question": "q", "method": {"path": "one.m", "default": "none"}, "category": "gold.gold",
            "answer": {"path": "one.t", "default": ""}, "contexts": "passages[].match.text",
        },
    )  # fmt: skip
    expected = [("1", "yes", ("x", "1")), ("1", "yes", ("y", "2")), ("2", None, None)]
    assert [(r.sample.id, r.sample.category, r.output and (r.output.method, r.output.answer)) for r in found] == expected
    assert [c.text for c in found[0].output.chunks] == ["two", "one"]


def test_join_two_lists_of_one_document(read_file):
    document = {"tasks": [{"t": "1", "q": "a"}], "evaluations": [{"task": "1", "m": "x", "a": "1"}, {"task": "1", "m": "y", "a": "2"}]}
    found = read_file(
        {"d.json": json.dumps(document)},
        records="evaluations",
        join={"task": {"records": "tasks", "by": "t", "key": "task"}},
        fields={"id": "task.t", "question": "task.q", "method": "m", "answer": "a"},
    )
    assert [(r.sample.question, r.output.method, r.where) for r in found] == [("a", "x", "d.json:1"), ("a", "y", "d.json:2")]


def test_a_key_that_stands_twice_in_a_joined_file_is_named(read_file):
    files = {"q.jsonl": lines({"id": "1", "q": "a"}), "gold.csv": "id,gold\n1,yes\n2,no\n1,no\n"}
    join = {"gold": {"file": "gold", "by": "id", "key": "id"}}
    with pytest.raises(DataError, match=r"\./gold\.csv:4: id\n.*'1' a second time\n.*gold\.csv:2\n.*many"):
        read_file(files, files={"main": "q.jsonl", "gold": "gold.csv"}, join=join, fields=BASE)


def test_a_join_that_matches_nothing_is_refused_with_an_example_of_both_sides(read_file):
    files = {"q.jsonl": lines({"id": "1", "q": "a"}, {"id": "2", "q": "b"}), "r.run": "q-1 Q0 d1 1 0.5 t\n"}
    join = {"run": {"file": "run", "by": "query", "key": "id"}}
    fields = {**BASE, "chunks": {"each": "run.hits", "default": [], "fields": {"id": "doc"}}}
    says = r"\./r\.run: join\.run\n.*none of 2 keys is there, e\.g\. a text: '2'; the file has e\.g\. a text: 'q-1'\n.*`query` equals `id`"
    with pytest.raises(DataError, match=says):
        read_file(files, files={"main": "q.jsonl", "run": "r.run"}, join=join, fields=fields)


def test_split_strips_the_pieces_and_leaves_out_empty_ones(read_file):
    data = lines({"id": "s1", "q": "a", "p": "passage 1: one\n passage 1 again\n\npassage 2:\ntwo \npassage 3:"})
    split = {"parts": {"text": "p", "pattern": r"(?:^|\n+)passage \d+:"}}
    (found,) = read_file({"d.jsonl": data}, split=split, fields={**BASE, "contexts": "parts"})
    assert [c.text for c in found.output.chunks] == ["one\n passage 1 again", "two"]
    with pytest.raises(DataError, match=r"1000002 characters\n.*at most 1000000"):
        read_file({"d.jsonl": lines({"id": "s1", "q": "a", "p": "a," * 500_001})}, split=split, fields={**BASE, "contexts": "parts"})


def test_maps_translate_values_and_each_of_a_list(read_file):
    data = lines({"id": "1", "q": "a", "l": "Y", "t": ["x", "y"], "n": 2, "b": True}, {"id": "2", "q": "b", "n": 1, "b": False})
    fields = {
        **BASE, "answerable": {"path": "l", "map": {"Y": True, "N": False}}, "tags": {"path": "t", "map": {"x": "X", "y": "Y"}, "default": []},
        "category": {"path": "n", "map": {1: "one", 2: "two"}}, "difficulty": {"path": "b", "map": {True: "hard", False: None}},
    }  # fmt: skip
    one, two = (r.sample for r in read_file({"d.jsonl": data}, fields=fields))
    assert (one.answerable, one.tags, one.category, one.difficulty) == (True, ["X", "Y"], "two", "hard")
    assert (two.answerable, two.tags, two.category, two.difficulty) == (None, [], "one", None)


def test_constants_objects_lists_and_maps_of_elements(read_file):
    data = lines({"id": "1", "q": "a", "turns": [{"who": "agent", "t": "hi"}], "judged": [{"d": "x", "r": 2}, {"d": "y", "r": 0}]})
    fields = {
        **BASE, "method": {"const": "bm25"}, "vault": {"const": "true"},
        "history": {"each": "turns", "fields": {"role": {"path": "who", "map": {"agent": "assistant"}}, "text": "t"}},
        "gains": {"each": "judged", "key": "d", "value": "r"},
        "references": {"each": "judged", "value": {"path": "r", "map": {0: "none", 2: "two"}}},
        "expected": {"fields": {"behavior": {"const": "reject"}}},
        "meta": {"fields": {"file": "_file", "line": "_line", "none": {"const": None}}},
    }  # fmt: skip
    (found,) = read_file({"d.jsonl": data}, fields=fields)
    sample = found.sample
    assert (sample.vault, sample.gains, sample.references) == ("true", {"x": 2.0, "y": 0.0}, ["two", "none"])
    assert [turn.model_dump() for turn in sample.history] == [{"role": "assistant", "text": "hi"}]
    assert sample.expected.behavior == "reject"
    assert sample.meta == {"file": "d.jsonl", "line": 1, "none": None}
    assert found.output.method == "bm25"


def test_json_inside_a_csv_cell_and_numbers_from_text(read_file):
    text = 'id,q,found,score\n1,a,"[{""t"": ""one""}]",3.5\n'
    fields = {**BASE, "chunks": "parse(found)[].{text: t}", "gains": {"fields": {"d": "to_number(score)"}}}
    (found,) = read_file({"d.csv": text}, fields=fields)
    assert found.output.chunks[0].text == "one"
    assert found.sample.gains == {"d": 3.5}
    with pytest.raises(DataError, match=r"neither JSON nor a Python literal"):
        read_file({"d.csv": "id,q,found\n1,a,[\n"}, fields={**BASE, "contexts": "parse(found)"})


def test_a_text_is_split_inside_an_expression(read_file):
    data = json.dumps({"id": "1", "q": "?", "urls": ["[1] https://a.b/c\nA text.", "[2]"]})
    ids = {"each": "urls", "fields": {"id": 'split(@, `"\\n"`)[0]', "text": "@"}}
    (found,) = read_file({"d.jsonl": data}, fields={**BASE, "contexts": ids, "category": "join('+', split(q, ''))"})
    assert [chunk.id for chunk in found.output.chunks] == ["[1] https://a.b/c", "[2]"]
    assert found.sample.category == "?"
    with pytest.raises(DataError, match=r"split\(\).*invalid type"):
        read_file({"d.jsonl": data}, fields={**BASE, "category": "split(urls, 'x')"})


def test_several_files_are_methods_of_one_data_set(read_file):
    files = {"a_gpt.json": '[{"id": "1", "q": "a", "r": "x"}]', "a_claude.json": '[{"id": "1", "q": "a", "r": "y"}]'}
    fields = {**BASE, "answer": "r", "method": {"path": "_file", "map": {"a_gpt.json": "gpt", "a_claude.json": "claude"}}}
    found = read_file(files, files={"main": "a_*.json"}, fields=fields)
    assert [(r.output.method, r.output.answer) for r in found] == [("claude", "y"), ("gpt", "x")]


def test_a_run_is_in_the_order_of_its_rank_column_and_keeps_the_scores(read_file):
    files = {"r.run": "1 Q0 b 2 0.9 t\n2 Q0 c 1 1e-1 t\n1\tQ0  a 1 -3 t\n", "j.qrels": "1 0 a 2\n1 0 z 0\n3 0 y 1\n"}
    fields = {
        "id": "query", "question": "query", "gains": {"each": "judged", "key": "doc", "value": "relevance"},
        "chunks": {"each": "run.hits", "default": [], "fields": {"id": "doc", "score": "score"}},
    }  # fmt: skip
    join = {"run": {"file": "run", "by": "query", "key": "query"}}
    one, three = read_file(files, files={"main": "j.qrels", "run": "r.run"}, join=join, fields=fields)
    assert [(c.id, c.rank, c.score) for c in one.output.chunks] == [("a", 1, -3.0), ("b", 2, 0.9)]
    assert (one.sample.gains, three.sample.gains, three.output.chunks) == ({"a": 2.0, "z": 0.0}, {"y": 1.0}, [])


@pytest.mark.parametrize(("text", "roots"), [
    ("a.b[?c].d", {"a"}), ("join('_', [a, b.c])", {"a", "b"}), ("{x: a, y: b | c}", {"a", "b"}), ("a[-1].b", {"a"}), ("a || b", {"a", "b"}),
    ("`1`", set()), ("@.a", {"@"}), ("length(a[?!b]) > `0`", {"a"}),
])  # fmt: skip
def test_the_names_an_expression_needs(text, roots):
    assert Expression(text).roots == roots


@pytest.mark.parametrize(("text", "says"), [
    ("a.[b", "ends too early"), ("a.b#", "'#' does not fit at position 4"), ("a b", "'b' does not fit at position 3"), ("", "is empty"),
    ("nope(a)", "no function 'nope'"), ("length(", "ends too early"),
])  # fmt: skip
def test_a_wrong_expression_is_told_with_its_position(text, says):
    with pytest.raises(BadExpression, match=says.replace("(", "\\(")):
        Expression(text)


@pytest.mark.parametrize(("text", "fix"), [
    ("KB Snips", """'"KB Snips"'"""), ("Bot-Antwort", """'"Bot-Antwort"'"""), ("Hilfreich?", """'"Hilfreich?"'"""), ("größe", """'"größe"'"""),
    ("a.[b", ""), ("length(", ""), ("", ""),
])  # fmt: skip
def test_a_name_with_signs_is_told_with_its_quotes(text, fix):
    with pytest.raises(BadExpression) as caught:
        Expression(text)
    assert caught.value.fix.endswith(fix)
    assert bool(caught.value.fix) == bool(fix)
    if fix:
        assert Expression(yaml.safe_load(fix))({text: "x"}) == "x"


def test_a_name_in_single_quotes_is_told_with_the_right_ones():
    fields = {"question": "q", "answer": "number('KB Snips')"}
    settings = DatasetSettings.model_validate({"path": "a.csv", "fields": fields})
    record = {"q": "Who?", "KB Snips": '"Ada."'}
    (_, _, (problem,)) = next(RecordMapping(settings, {}).cases(record, "a.csv", 1, 1))
    assert problem.fix.endswith('number("KB Snips")')


@pytest.mark.parametrize(("settings", "key", "says"), [
    ({"fields": {"id": "a", "question": "b", "anwser": "c"}}, "fields", "did you mean 'answer'"),
    ({"fields": {"id": "a"}}, "fields", "missing: question"),
    ({"fields": {"id": "a", "question": {"path": "b["}}}, "fields.question.path", "ends too early"),
    ({"fields": {"id": "a", "question": {"path": "b", "const": "c"}}}, "fields.question", "one of `path`"),
    ({"fields": {"id": "a", "question": "b", "chunks": {"each": "c"}}}, "fields.chunks", "needs `fields`"),
    ({"fields": {"id": "a", "question": "b", "chunks": {"each": "c", "fields": {"txt": "d"}}}}, "fields", "'txt' is no field"),
    ({"join": {"x": {"file": "f", "by": "a", "key": "b", "each": "c"}}}, "join.x", "go together"),
    ({"join": {"x": {"by": "a", "key": "b"}}}, "join.x", "must be given"),
    ({"split": {"x": {"text": "a", "pattern": "("}}}, "split.x.pattern", "pattern"),
    ({"split": {"x": {"text": "a", "pattern": ","}}, "explode": {"x": "a"}, "fields": BASE}, "", "given twice"),
    ({"explode": {"a": "b.c", "b": "a"}, "fields": BASE}, "", "a, b need each other"),
    ({"filter": "a =="}, "filter", "ends too early"),
])  # fmt: skip
def test_a_wrong_mapping_is_refused_with_its_key(settings, key, says):
    with pytest.raises(ValidationError) as refused:
        DatasetSettings(path="x", **settings)
    (fault,) = refused.value.errors()
    assert ".".join(str(part) for part in fault["loc"]) == key
    assert says in fault["msg"]


def test_identity_knows_the_mapping_and_not_the_place():
    one = DatasetSettings(path="x", name="n", files={"main": "a"}, fields=BASE)
    other = DatasetSettings(path="y", name="m", files={"main": "b"}, fields={"id": FieldMap(path="id"), "question": FieldMap(path="q")})
    assert one.identity() == other.identity()
    assert one.identity() != DatasetSettings(path="x", fields={**BASE, "answer": "a"}).identity()
    assert one.identity() != DatasetSettings(path="x", fields=BASE, limit=3).identity()
    json.dumps(one.identity(), allow_nan=False)


def test_each_element_of_an_object_is_its_key_and_value(read_file):
    data = lines({"id": "s1", "q": "a", "people": {"a1": {"grade": "4"}, "a2": {"grade": "2"}}}, {"id": "s2", "q": "b", "people": {}})
    grades = {"each": "people", "key": "key", "value": {"path": "value.grade", "map": {"4": 4, "2": 2}}}
    names = {"each": "people", "value": "key"}
    fields = {**BASE, "answer": {"const": ""}, "recorded": {"fields": {"human": grades}}, "tags": names}
    found = read_file({"d.jsonl": data}, fields=fields)
    assert [r.output and r.output.recorded for r in found] == [{"human": {"a1": 4, "a2": 2}}, {"human": {}}]
    assert [r.sample.tags for r in found] == [["a1", "a2"], []]


def test_otherwise_is_for_values_that_are_not_in_the_map_and_for_nothing_else(read_file):
    data = lines(
        *({"id": f"s{n}", "q": "a", **more} for n, more in enumerate([{"v": "yes"}, {"v": "hm"}, {"v": 7}, {}, {"v": ["yes", "hm"]}]))
    )
    verdict = {"path": "v", "map": {"yes": 1}, "otherwise": {"unreadable": "no yes"}, "default": 0.5}
    fields = {**BASE, "answer": {"const": ""}, "recorded": {"fields": {"j": verdict}}}
    unreadable = {"unreadable": "no yes"}
    found = [r.output.recorded["j"] for r in read_file({"d.jsonl": data}, fields=fields) if r.output]
    assert found == [1, unreadable, unreadable, 0.5, [1, unreadable]]
    with pytest.raises(ValidationError, match="`otherwise` stands beside a `map`"):
        FieldMap.model_validate({"path": "v", "otherwise": 1})


@pytest.mark.parametrize("file", sorted((conf_dir() / "dataset").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_mapping_written_down_reads_back_as_the_same_mapping(file):
    """A run's config.yaml is read again by every task over a finished run."""
    plain = yaml.safe_load(file.read_text(encoding="utf-8"))
    for base in plain.pop("defaults", []):
        if base != "_self_":
            based_on = yaml.safe_load((file.parent / f"{base}.yaml").read_text(encoding="utf-8"))
            plain = {**based_on, **plain, "fields": {**based_on["fields"], **plain.get("fields", {})}}
    settings = DatasetSettings.model_validate({**plain, "path": "x"})
    written = yaml.safe_dump(settings.model_dump(mode="json", by_alias=True))
    again = DatasetSettings.model_validate(yaml.safe_load(written))
    assert again == settings
    assert again.identity() == settings.identity()


@pytest.mark.parametrize(("option", "asked"), [
    ("eval_set", {"input": {"query": "Who?"}}), ("golden_set", {"question": "Who?"}),
    ("query_logs", {"question": "Who?", "context": []}),
    ("graphrag", {"question": "Who?", "ground_truth": "Ada.", "method": "m"}),
])  # fmt: skip
def test_the_options_of_the_documents_read_timings_usage_and_errors(open_file, option, asked):
    plain = yaml.safe_load((conf_dir() / "dataset" / f"{option}.yaml").read_text(encoding="utf-8"))
    operations = {"timings": {"total": 1200.0}, "usage": {"tokens_in": 7.0, "cost_usd": 0.014}}
    said = [{"response" if option == "eval_set" else "answer": "Ada.", **operations}, {"error": "timed out"}]
    rows = [{**asked, **({"output": output} if option == "eval_set" else output)} for output in said]
    rows = [{"queryLogId" if option == "query_logs" else "id": f"{n}", **row} for n, row in enumerate(rows)]
    settings = {key: value for key, value in plain.items() if key not in ("path", "files")}
    good, failed = (record.output for record in open_file({"d.json": json.dumps(rows)}, **settings))
    assert (good.timings, good.usage, good.error) == (*operations.values(), None)
    assert (failed.answer, failed.error) == (None, "timed out")
