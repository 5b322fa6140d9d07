"""Data files that must be refused, and what the message must say.

`row` is the row of reliability.md section 4 D, or of section 3 (`3 ...`), that the file belongs to.
"""

import gzip
import io
import pickle
import zipfile
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

GOOD = '{"id": "q1", "question": "Why?", "answer": "Because."}\n'


def recorded(value: str) -> str:
    return f'{{"id": "q9", "question": "Why?", "answer": "Because.", "recorded": {value}}}\n'


@dataclass(frozen=True)
class Broken:
    row: str
    name: str
    content: bytes | str
    says: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        return self.content.encode("utf-8") if isinstance(self.content, str) else self.content


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _xlsx() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as file:
        file.writestr("xl/workbook.xml", "<workbook/>")
    return sink.getvalue()


class _Trap:
    """What a pickle could do: reading it would raise AssertionError, which no test expects."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return _sprung, ("the pickle was loaded",)


def _sprung(message: str) -> None:
    raise AssertionError(message)


TABLE = pa.table({"id": ["q1", "q2"], "question": ["a", "b"], "answer": ["x", "y"]})
_PARQUET = parquet(pa.table({"id": [f"q{i}" for i in range(500)], "question": [f"text {i}" * 9 for i in range(500)]}))
_FLIPPED = bytearray(parquet(pa.table({"id": [f"q{i}" for i in range(500)]}), write_page_checksum=True))
_FLIPPED[60] ^= 0xFF
_TWICE = pa.Table.from_arrays([pa.array(["q1"]), pa.array(["q2"]), pa.array(["a"])], names=["id", "id", "question"])

BROKEN = [
    # D1: nothing in it
    Broken("D1", "empty.jsonl", "", ("empty.jsonl", "no records")),
    Broken("D1", "blank.jsonl", "\n  \n\r\n", ("blank.jsonl", "no records")),
    Broken("D1", "empty.csv", "", ("empty.csv", "no records")),
    Broken("D1", "header.csv", "id,question,answer\n", ("header.csv", "no records")),
    Broken("D1", "list.json", "[]", ("list.json", "no records")),
    Broken("D1", "rows.parquet", parquet(TABLE.slice(0, 0)), ("rows.parquet", "no records")),
    Broken("D1", "empty.run", "\n", ("empty.run", "no records"), {"fields": {"id": "query", "question": "query"}}),
    # D2: broken lines
    Broken("D2", "line.jsonl", GOOD + '{"id": "q2", "question" "b"}\n', ("line.jsonl:2", "column 25", "delimiter")),
    Broken("D2", "cut.jsonl", GOOD + '{"id": "q2", "quest', ("cut.jsonl:2", "cut off", "JSON object")),
    Broken("D2", "two.jsonl", 'x\n' + GOOD + '{"id": 1}}\n', ("two.jsonl:1", "two.jsonl:3", "text follows")),
    Broken("D2", "scalar.jsonl", GOOD + "17\n", ("scalar.jsonl:2", "a number: 17", "JSON object")),
    Broken("D2", "array.jsonl", "[" + GOOD.strip() + "]\n", ("array.jsonl:1", "a list", "dataset.format=json")),
    Broken("D2", "cut.json", '[{"id": "q1", "question": "a"},\n {"id": "q2", "ques', ("cut.json:2", "cut off")),
    Broken("D2", "open.json", '[{"id": "q1", "question": "a"}\n', ("open.json:2", "end of the file")),
    Broken("D2", "comma.json", '[{"id": "q1", "question": "a"},\n]', ("comma.json:2", "comma before")),
    Broken("D2", "after.json", '[{"id": "q1", "question": "a"}]\nx', ("after.json:2", "'x' after the list")),
    Broken("D2", "numbers.json", '[{"id": "q1", "question": "a"},\n3]', ("numbers.json:2", "a number: 3", "an object")),
    Broken("D2", "object.json", '{"data": []}', ("object.json:1", "a list of objects", "dataset.records")),
    Broken("D2", "inside.json", '{"data": {"id": "q1"}}', ("inside.json", "records (data)", "an object"), {"records": "data"}),
    Broken("D2", "broken.json", '{"data": [\n{"id": }]}', ("broken.json:2", "Expecting value"), {"records": "data"}),
    # D3: encodings
    Broken("D3", "utf16.jsonl", GOOD.encode("utf-16"), ("utf16.jsonl", "UTF-16", "not loaded")),
    Broken("D3", "utf16le.jsonl", GOOD.encode("utf-16-le"), ("utf16le.jsonl", "UTF-16")),
    Broken("D3", "latin1.jsonl", (GOOD + '{"id": "é", "question": "b"}\n').encode("latin-1"), ("latin1.jsonl:2", "0xe9", "iconv")),
    Broken("D3", "latin1.csv", "id,question\nq1,caf\xe9\n".encode("latin-1"), ("latin1.csv:2", "0xe9", "column 7", "UTF-8")),
    Broken("D3", "latin1.json", '[{"id": "q1",\n"question": "caf\xe9"}]'.encode("latin-1"), ("latin1.json:2", "0xe9", "UTF-8")),
    Broken("D3", "gzip.jsonl", gzip.compress(GOOD.encode())[:-12], ("gzip.jsonl", "gzip", "download it again")),
    # D7: duplicate keys
    Broken("D7", "twice.jsonl", '{"id": "q1", "question": "a", "id": "q2"}\n', ("twice.jsonl:1", "'id' appears twice")),
    Broken("D7", "deep.json", '[{"id": "q1", "meta": {"a": 1,\n "a": 2}}]', ("deep.json", "'a' appears twice")),
    # D8: fields
    Broken("D8", "missing.jsonl", GOOD + '{"id": "q2"}\n', ("missing.jsonl:2", "'q2'", "question", "absent")),
    Broken("D8", "null.jsonl", '{"id": "q1", "question": null}\n', ("null.jsonl:1", "'q1'", "question", "null", "valid string")),
    Broken("D8", "blank.jsonl", '{"id": "q1", "question": "  "}\n', ("blank.jsonl:1", "'q1'", "question", "blank")),
    Broken("D8", "zero.jsonl", GOOD + '{"id": "q2", "question": " \\u200b\\t", "answer": "a"}\n', ("zero.jsonl:2", "'q2'", "question", "blank text (' \\u200b\\t')")),
    Broken("D8", "mark.csv", "id,question,answer\nq1,\ufeff\u2060,Because.\n", ("mark.csv:2", "'q1'", "question", "blank text")),
    Broken("D8", "filler.json", '[{"id": "q1", "question": "\\u3164\\u2800\\u00ad"}]', ("filler.json", "'q1'", "question", "blank text")),
    Broken("D8", "name.jsonl", '{"id": "\\u200b", "question": "Why?"}\n', ("name.jsonl:1", "id", "blank text")),
    Broken("D8", "method.jsonl", '{"id": "q1", "question": "Why?", "method": "\\u202e", "answer": "a"}\n', ("method.jsonl:1", "'q1'", "method", "blank text")),
    Broken("D8", "mapped.jsonl", '{"n": "q1", "q": "\\u2028"}\n', ("mapped.jsonl:1", "'q1'", "question", "blank text"), {"fields": {"id": "n", "question": "q"}}),
    Broken("D8", "noid.jsonl", '{"id": "", "question": "a"}\n', ("noid.jsonl:1", "id", "at least 1 character")),
    Broken("D8", "number.jsonl", '{"id": 7, "question": "a"}\n', ("number.jsonl:1", "id", "a number: 7", "quotes")),
    Broken("D8", "answer.jsonl", '{"id": "q1", "question": "a", "answer": 7}\n', ("answer.jsonl:1", "answer", "a number: 7", "in quotes")),
    Broken("D8", "bool.jsonl", '{"id": "q1", "question": "a", "answerable": "yes"}\n', ("bool.jsonl:1", "answerable", "a text: 'yes'")),
    Broken("D8", "contexts.jsonl", '{"id": "q1", "question": "a", "contexts": "text"}\n', ("contexts.jsonl:1", "contexts", "a list")),
    Broken("D8", "chunk.jsonl", '{"id": "q1", "question": "a", "contexts": ["x", 3]}\n', ("chunk.jsonl:1", "contexts[1].text", "a number: 3")),
    Broken("D8", "unknown.jsonl", '{"id": "q1", "question": "a", "anwser": "x"}\n', ("unknown.jsonl:1", "anwser", "did you mean 'answer'?")),
    Broken("D8", "both.jsonl", '{"id": "q1", "question": "a", "contexts": [], "chunks": []}\n', ("both.jsonl:1", "one of the two")),
    Broken("D8", "outputs.jsonl", '{"id": "q1", "question": "a", "outputs": [{"method": "m", "text": "x"}]}\n', ("outputs.jsonl:1", "text")),
    Broken("D8", "rule.jsonl", '{"id": "q1", "question": "a", "recency_conflict_rule": "newest"}\n', ("rule.jsonl:1", "cite_newer")),
    Broken("D8", "closed.jsonl", '{"id": "q1", "question": "a", "outputs": [{"method": "m", "contexts": ["x"], "retrieves": false}]}\n',
           ("closed.jsonl:1", "'q1'", "'m'", "retrieves", "1 chunks", "no chunks")),
    Broken("D8", "word.jsonl", '{"id": "q1", "question": "a", "answer": "x", "retrieves": "no"}\n', ("word.jsonl:1", "retrieves", "'no'")),
    # two cases of one name, one sample with two contents
    Broken("ids", "case.jsonl", GOOD + "\n" + GOOD, ("case.jsonl:3", "case.jsonl:1", "'q1'", "'default'", "second time")),
    Broken("ids", "content.jsonl", GOOD + '{"id": "q1", "question": "Who?", "method": "b"}\n', ("content.jsonl:2", "content.jsonl:1", "'q1'")),
    Broken("ids", "questions.jsonl", '{"id": "q1", "question": "a"}\n' * 2, ("questions.jsonl:2", "questions.jsonl:1", "'q1'")),
    # D14: CSV
    Broken("D14", "ragged.csv", "id,question\nq1,a\nq2,b,c\nq3\n", ("ragged.csv:3", "3 cells", "ragged.csv:4", "1 cells")),
    Broken("D14", "quote.csv", 'id,question\nq1,"a\nq2,b\n', ("quote.csv:2", "line 3", "close every quote")),
    Broken("D14", "inner.csv", 'id,question\nq1,"a"b\n', ("inner.csv:2", "row", "expected after")),
    Broken("D14", "semicolon.csv", "id;question\nq1;a\n", ("semicolon.csv:1", "header", "dataset.delimiter")),
    Broken("D14", "header2.csv", "id,question,id\nq1,a,b\n", ("header2.csv:1", "'id' twice")),
    Broken("D14", "nameless.csv", "id,,question\nq1,x,a\n", ("nameless.csv:1", "column 2 without a name")),
    Broken("D14", "cell.csv", "id,question,tags\nq1,a,\"['x' ... 'y']\"\n", ("cell.csv:2", "tags", "left out", "json.dumps")),
    # D16: Parquet
    Broken("D16", "cut.parquet", _PARQUET[: len(_PARQUET) // 2], ("cut.parquet", "damaged")),
    Broken("D16", "flipped.parquet", bytes(_FLIPPED), ("flipped.parquet row 1", "damaged")),
    Broken("D16", "names.parquet", parquet(_TWICE), ("names.parquet", "two columns of this name")),
    Broken("D16", "types.parquet", parquet(pa.table({"id": [1, 2], "question": ["a", "b"]})), ("types.parquet row 1", "row 2", "a number: 1")),
    Broken("D16", "bytes.parquet", parquet(pa.table({"id": ["q1"], "question": [b"a"]})), ("bytes.parquet", "question", "binary")),
    Broken("D16", "nan.parquet", parquet(pa.table({"id": ["q1"], "question": ["a"], "meta": [{"x": float("nan")}]})), ("nan.parquet row 1", "meta", "nan")),
    Broken("D16", "span.parquet", parquet(pa.table({"id": ["q1"], "question": ["a"], "took": pa.array([1], pa.time64("ns"))})), ("span.parquet", "took")),
    Broken("D16", "text.parquet", GOOD, ("text.parquet", "PAR1")),
    Broken("D16", "disguised.jsonl", parquet(TABLE), ("disguised.jsonl", "Parquet")),
    # D18: never loaded
    Broken("D18", "data.pkl", pickle.dumps(_Trap()), ("data.pkl", "'.pkl'", ".jsonl")),
    Broken("D18", "pickle.jsonl", pickle.dumps(_Trap()), ("pickle.jsonl", "pickle", "not loaded")),
    Broken("D18", "data.xlsx", _xlsx(), ("data.xlsx", "'.xlsx'", ".csv")),
    Broken("D18", "xlsx.csv", _xlsx(), ("xlsx.csv", "zip", "not loaded")),
    Broken("D18", "noname", GOOD, ("noname", "suffix", "dataset.format")),
    Broken("D7", "method.jsonl", '{"id": "q1", "question": "a", "outputs": [{"method": "m", "answer": "b"}, {"method": "m", "answer": "c"}]}\n',
           ("method.jsonl:1", "'q1', method 'm' a second time", "repeat: 1, 2")),
    Broken("D7", "repeat.jsonl", '{"id": "q1", "question": "a", "outputs": [{"repeat": 2, "answer": "b"}, {"repeat": 2, "answer": "c"}]}\n',
           ("repeat.jsonl:1", "'q1', method 'default', repeat 2 a second time")),
    Broken("D7", "third.jsonl", '{"id": "q1", "question": "a", "outputs": [{"method": "m", "answer": "b"}]}\n'
           '{"id": "q1", "question": "a", "outputs": [{"method": "n", "answer": "b"}]}\n{"id": "q1", "question": "a", "outputs": [{"method": "n", "answer": "c"}]}\n',
           ("third.jsonl:3", "method 'n' a second time", "third.jsonl:2", "repeat: 1, 2")),
    Broken("D7", "other.jsonl", '{"id": "q1", "question": "a", "outputs": [{"method": "m", "answer": "b"}]}\n'
           '{"id": "q1", "question": "x", "outputs": [{"method": "n", "answer": "b"}]}\n', ("other.jsonl:2", "another sample content", "other.jsonl:1")),
    Broken("D7", "zero.jsonl", '{"id": "q1", "question": "a", "answer": "b", "repeat": 0}\n', ("zero.jsonl:1", "repeat", "0", "greater than or equal to 1")),
    # what the mapping does not find
    Broken("mapping", "map.jsonl", '{"i": "q1", "q": "a", "label": "MAYBE"}\n', ("map.jsonl:1", "fields.answerable.map", "'MAYBE'", "YES"),
           {"fields": {"id": "i", "question": "q", "answerable": {"path": "label", "map": {"YES": True}}}}),
    Broken("mapping", "path.jsonl", '{"i": "q1", "q": "a", "response": {"text": "b"}, "hits": ["c"]}\n',
           ("path.jsonl", "fields.answer (respons.text)", "null in every record", "correct the path"),
           {"fields": {"id": "i", "question": "q", "answer": "respons.text", "contexts": "hits"}}),
    Broken("mapping", "hits.jsonl", '{"i": "q1", "q": "a", "text": "b"}\n',
           ("hits.jsonl", "fields.chunks (each hits: ", "null in every record", "take the field out"),
           {"fields": {"id": "i", "question": "q", "answer": "text", "chunks": {"each": "hits", "fields": {"text": "@"}}}}),
    Broken("mapping", "both.jsonl", '{"i": "q1", "q": "a"}\n', ("both.jsonl", "fields.answer (respons.text)", "null in every record"),
           {"fields": {"id": "i", "question": "q", "answer": "respons.text"}}),
    Broken("mapping", "function.jsonl", '{"i": "q1", "q": 3}\n', ("function.jsonl:1", "fields.question", "length()"),
           {"fields": {"id": "i", "question": "to_string(length(q))"}}),
    Broken("mapping", "explode.jsonl", '{"i": "q1", "q": "a"}\n', ("explode.jsonl:1", "explode.r (responses)", "null"),
           {"explode": {"r": "responses"}, "fields": {"id": "i", "question": "q"}}),
    Broken("mapping", "integer.jsonl", '{"i": 7, "q": "a"}\n', ("integer.jsonl:1", "id", "a number: 7", "to_string"),
           {"fields": {"id": "i", "question": "q"}}),
    Broken("mapping", "types.jsonl", GOOD, ("types.jsonl:1", "filter (id > `3`)", "it cannot be applied here"), {"filter": "id > `3`"}),
    Broken("mapping", "step.jsonl", GOOD.replace('}', ', "tags": ["a"]}'), ("step.jsonl:1", "filter (tags[0:5:0])", "step"), {"filter": "tags[0:5:0]"}),
    Broken("mapping", "filter.jsonl", GOOD, ("filter.jsonl", "no record", "difficulty"), {"filter": "difficulty == 'hard'"}),
    Broken("mapping", "each.jsonl", '{"i": "q1", "q": "a", "people": 4}\n', ("each.jsonl:1", "recorded.human (people)", "a number: 4", "a list or an object"),
           {"fields": {"id": "i", "question": "q", "recorded": {"fields": {"human": {"each": "people", "value": "@"}}}}}),
    Broken("mapping", "otherwise.jsonl", '{"i": "q1", "q": "a", "v": {"text": "yes"}}\n', ("otherwise.jsonl:1", "recorded.j.map", "an object"),
           {"fields": {"id": "i", "question": "q", "recorded": {"fields": {"j": {"path": "v", "map": {"yes": 1}, "otherwise": 0}}}}}),
    # what people or other judges said
    Broken("recorded", "label.jsonl", GOOD + recorded('{"human": "good"}'), ("label.jsonl:2", "recorded.human", "a text: 'good'", "a number", "`map`")),
    Broken("recorded", "number.jsonl", recorded('{"human": "4"}'), ("number.jsonl:1", "recorded.human", "a text: '4'")),
    Broken("recorded", "inside.jsonl", recorded('{"human": {"a1": 4, "a2": "4"}}'), ("inside.jsonl:1", "recorded.human", "not so: 'a2'")),
    Broken("recorded", "list.jsonl", recorded('{"claims": [1, true, null, [0]]}'), ("list.jsonl:1", "recorded.claims", "not so: '4'")),
    Broken("recorded", "deep.jsonl", recorded('{"human": {"a1": {"grade": 4}}}'), ("deep.jsonl:1", "recorded.human", "not so: 'a1'")),
    Broken("recorded", "bare.jsonl", recorded("4"), ("bare.jsonl:1", "recorded", "a number: 4", "dictionary")),
    Broken("recorded", "nan_recorded.jsonl", GOOD + recorded('{"human": NaN}'), ("nan_recorded.jsonl:2", "NaN is not JSON")),
    Broken("recorded", "huge.jsonl", recorded('{"human": 1' + "0" * 400 + "}"), ("huge.jsonl:1", "recorded.human", "a number")),
    Broken("recorded", "name.jsonl", recorded("{}").replace("recorded", "recoded"), ("name.jsonl:1", "recoded", "did you mean 'recorded'")),
    Broken("recorded", "nan_recorded.parquet", parquet(pa.table({"id": ["q1"], "question": ["a"], "answer": ["b"], "recorded": [{"human": float("nan")}]})),
           ("nan_recorded.parquet row 1", "recorded", "nan")),
    Broken("recorded", "recorded.csv", 'id,question,answer,recorded\nq1,a,b,"{""human"": ""good""}"\n', ("recorded.csv:2", "recorded.human", "a text: 'good'")),
    # section 3: what json.loads and pattern engines let through
    Broken("3 JSON", "nan.jsonl", '{"id": "q1", "question": "a", "meta": {"x": NaN}}\n', ("nan.jsonl:1", "NaN is not JSON")),
    Broken("3 JSON", "infinity.jsonl", '{"id": "q1", "question": "a", "gains": {"d": -Infinity}}\n', ("infinity.jsonl:1", "-Infinity")),
    Broken("3 JSON", "large.jsonl", '{"id": "q1", "question": "a", "gains": {"d": 1e999}}\n', ("large.jsonl:1", "1e999", "too large")),
    Broken("3 JSON", "digits.jsonl", '{"id": "q1", "question": "a", "meta": {"n": ' + "9" * 5000 + "}}\n", ("digits.jsonl:1", "4300 digits")),
    Broken("3 JSON", "depth.jsonl", GOOD + '{"id": "q1", "meta": ' + "[" * 100_000 + "]" * 100_000 + "}\n", ("depth.jsonl:2", "deeper than 100")),
    Broken("3 JSON", "depth2.jsonl", '{"id": "q1", "question": "a", "meta": {"x": ' + "[" * 101 + "]" * 101 + "}}\n", ("depth2.jsonl:1", "deeper")),
    Broken("3 surrogates", "half.jsonl", GOOD + '{"id": "q2", "question": "a\\ud800"}\n', ("half.jsonl:2", "surrogate", "ud800")),
    Broken("3 surrogates", "half.json", '[{"id": "q2", "question": "a\\uDC00"}]', ("half.json:1", "surrogate")),
    Broken("3 ReDoS", "redos.jsonl", '{"i": "q1", "q": "' + "a" * 40 + '!"}\n', ("redos.jsonl:1", "split.parts.pattern", "1 s"),
           {"split": {"parts": {"text": "q", "pattern": r"(?:a|aa)+$"}}, "fields": {"id": "i", "question": "q", "contexts": "parts"}}),
    # TREC
    Broken("trec", "columns.run", "1 Q0 d1 1 0.5 t\n1 Q0 d2 2 0.4\n", ("columns.run:2", "5 columns", "6 columns"),
           {"fields": {"id": "query", "question": "query"}}),
    Broken("trec", "score.run", "1 Q0 d1 1 nan t\n1 Q0 d2 first 0.5 t\n", ("score.run:1", "'nan'", "score.run:2", "rank"),
           {"fields": {"id": "query", "question": "query"}}),
    Broken("trec", "twice.run", "1 Q0 d1 1 0.5 t\n1 Q0 d1 2 0.4 t\n", ("twice.run:2", "'d1'", "line 1"),
           {"fields": {"id": "query", "question": "query"}}),
    Broken("trec", "level.qrels", "1 0 d1 high\n", ("level.qrels:1", "relevance", "whole number"),
           {"fields": {"id": "query", "question": "query"}}),
]  # fmt: skip
