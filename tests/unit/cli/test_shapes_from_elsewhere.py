"""Files as data sets and frameworks write them: the first case that is read, or the doubt that is told."""

import csv
import io
import json
from pathlib import Path

import pytest

from ragpipe.cli.file_start import folder_for, start_from
from ragpipe.cli.option_files import MARKER
from ragpipe.core.errors import DataError

Q, Q2, A, R = "How long is the warranty?", "When do shops open?", "The warranty lasts two years.", "Two years."
C = ["The warranty lasts two years.", "Shops open at nine."]

# name, contents (a list is written as JSON Lines where the name says so), the texts of the chunks, the references
READ = [
    ("data_and_meta.json", {"meta": [{"k": 1}] * 9, "data": [{"question": q, "answer": A, "contexts": C} for q in (Q, Q2)]}, C, []),
    ("results_and_errors.json", {"errors": [{"code": 1}] * 9, "results": [{"query": q, "response": A, "contexts": C} for q in (Q, Q2)]}, C, []),
    ("langchain.jsonl", [{"query": Q, "result": A, "source_documents": [{"page_content": c, "metadata": {"source": "a"}} for c in C]}], C, []),
    ("llama_index.jsonl", [{"query": Q, "response": A, "source_nodes": [{"node": {"text": c}, "score": 0.5} for c in C]}], C, []),
    ("haystack.jsonl", [{"query": Q, "answer": A, "documents": [{"id": "1", "content": c, "score": 0.5} for c in C]}], C, []),
    ("azure.jsonl", [{"query": Q, "response": A, "context": C[0], "ground_truth": R}], C[:1], [R]),
    ("alce.jsonl", [{"question": Q, "output": A, "docs": [{"title": "T", "text": c} for c in C]}], C, []),
    ("marco.jsonl", [{"query": Q, "response": A, "passages": {"is_selected": [1, 0], "passage_text": C}, "wellFormedAnswers": []}], C, []),
    ("musique.jsonl", [{"question": Q, "prediction": A, "paragraphs": [{"idx": i, "title": "T", "paragraph_text": c} for i, c in enumerate(C)]}], C, []),
    ("trivia.jsonl", [{"question": Q, "prediction": A, "answer": {"value": R, "aliases": [R, "2 years"]}, "contexts": C}], C, [R, "2 years"]),
    ("squad_rows.jsonl", [{"question": Q, "prediction": A, "context": C[0], "answers": {"text": [R], "answer_start": [0]}}], C[:1], [R]),
    ("answers_of_systems.jsonl", [{"question": Q, "answers": A, "contexts": C, "reference": R}], C, [R]),
    ("ragflow.jsonl", [{"question": Q, "answer": A, "chunks": [{"content": c, "document_name": "a"} for c in C]}], C, []),
    ("dify.jsonl", [{"query": Q, "answer": A, "retriever_resources": [{"position": 1, "content": c, "score": 0.5} for c in C]}], C, []),
    ("numbered.csv", [{"question": Q, "answer": A, "context_1": C[0], "context_2": C[1]}], C, []),
    ("columns_of_documents.csv", [{"question": Q, "answer": A, "Doc 2": C[1], "Doc 1": C[0], "Doc 3": ""}], C, []),
    ("contents.jsonl", [{"question": Q, "response": A, "retrieved_docs": [{"content": c, "score": 0.5} for c in C]}], C, []),
    ("snippets.csv", [{"question": Q, "bot reply": A, "KB snippets": json.dumps(C)}], C, []),
    ("of_python.csv", [{"question": Q, "answer": A, "contexts": str(C)}], C, []),
    ("of_numpy.csv", [{"question": Q, "answer": A, "docs": "array(['a b', 'c d'], dtype=object)"}], ["a b", "c d"], []),
    ("of_langchain.csv", [{"question": Q, "answer": A, "docs": "[Document(page_content='a b', metadata={})]"}], ["a b"], []),
    ("ruled.csv", [{"question": Q, "answer": A, "contexts": "\n---\n".join(C)}], C, []),
    ("lines_end_at_a_line_feed.csv", [{"question": Q, "answer": A, "contexts": "a\u2028b\x85c\x0bd"}], ["a\u2028b\x85c\x0bd"], []),
    ("not_a_number.jsonl", [{"question": Q, "answer": A, "contexts": C, "latency": float("nan")}], C, []),
    ("mixed_kinds.jsonl", [{"question": Q, "answer": A, "passages": C[:1]}, {"question": Q2, "answer": A, "passages": [{"text": C[1]}]}], C[:1], []),
]  # fmt: skip
DOUBTED = [
    ("two_answers.jsonl", [{"question": Q, "prediction": A, "answer": R, "context": [["Title", C]]}], "either prediction or answer"),
    ("two_outputs.jsonl", [{"question": Q, "answer": A, "output": "It never closes.", "docs": C}], "answer or output"),
    ("answer_within.jsonl", [{"question": Q, "answer": A, "result": {"answer": R}}], "answer or result.answer"),
    ("paragraphs.jsonl", [{"question": Q, "answer": A, "contexts": "\n\n".join(C)}], "[contexts][?@]"),
    ("titled.jsonl", [{"question": Q, "response": A, "contexts": [["T", C[0]], ["O", C[1]]]}], "contexts[*][1]"),
    ("hotpot.jsonl", [{"_id": "1", "question": Q, "prediction": A, "context": [["Title", C]]}], "context[*].join(' ', @[1])"),
    ("no_passage_later.jsonl", [{"question": q, "answer": A, "passages": [c]} for q, c in ((Q, C[0]), (Q2, None))], "contexts: passages"),
    ("a_number_later.jsonl", [{"question": q, "answer": A, "passages": [c]} for q, c in ((Q, C[0]), (Q2, 3))], "contexts: passages"),
    ("lists_of_other_ids.json", {"questions": [{"id": "a", "question": Q}], "answers": [{"id": "b", "answer": A}]}, ""),
]  # fmt: skip


def write(path, contents):
    if path.suffix == ".csv":
        with io.StringIO(newline="") as stream:
            writer = csv.DictWriter(stream, list(contents[0]))
            writer.writeheader()
            writer.writerows(contents)
            text = stream.getvalue()
    elif path.suffix == ".jsonl":
        text = "".join(json.dumps(record) + "\n" for record in contents)
    else:
        text = json.dumps(contents)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "contents", "chunks", "references"), [
    pytest.param(*row, id=row[0], marks=[pytest.mark.slow] * row[0].endswith(".csv")) for row in READ
])  # fmt: skip
def test_a_shape_is_read(here, name, contents, chunks, references):
    start = start_from(write(here / name, contents), here / "folder")
    assert start.folder.is_runnable, (start.misfit, start.to_fill_in)
    case = start.reading.probe[0]
    assert (case.sample.question, case.output.answer) == (Q, A)
    assert [chunk.text for chunk in case.output.chunks] == chunks
    assert list(case.sample.references or ()) == references


@pytest.mark.parametrize(("contents", "words"), [
    ({"question": [Q, Q2], "answer": [A, A]}, []),
    ({"frage": [Q, Q2], "antwort": [A, A]}, ["dataset.records=rows(@)"]),
    ({"a": {"frage": Q, "antwort": A}, "b": {"frage": Q2, "antwort": A}}, ["dataset.records='*'"]),
])  # fmt: skip
def test_an_object_whose_whole_is_the_records_is_read_or_by_the_path_that_was_typed(here, contents, words):
    start = start_from(write(here / "whole.json", contents), here / "folder", arguments=words)
    if words:
        assert [entry.partition(": ")[2] for entry in start.to_fill_in][:2] == ["question: ???", "answer: ???"]
    else:
        assert [case.sample.question for case in start.reading.probe] == [Q, Q2]


def test_an_object_by_id_is_read_with_its_ids(here):
    records = {f"q{i}": {"question": question, "answer": A, "contexts": C} for i, question in enumerate((Q, Q2))}
    records["q1"]["id"] = "own"
    start = start_from(write(here / "by_id.json", records), here / "folder")
    assert [(case.sample.id, case.sample.question) for case in start.reading.probe] == [("q0", Q), ("own", Q2)]


def test_lists_of_other_lengths_are_refused(tmp_path):
    source = write(tmp_path / "lists.json", {"questions": [Q, Q2], "answers": [A]})
    with pytest.raises(DataError, match="a list of objects"):
        start_from(source, tmp_path / "folder")


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize(("line", "said"), [
    ('{"question": "When?", "answer": "x", "contexts": [{"text": "t", "id": "a", "id": "b"}]}', r": line\n.*the key 'id' appears twice"),
    ('{"question": "When?", "answer": "x", "contexts": [{"id": "a", "text": null}]}', r" \(id '\w+'\): contexts\[0\].text\n.*null"),
    ('{"question": "When?", "answer": "x", "contexts": [null, "x"]}', r" \(id '\w+'\): contexts\[0\].text\n.*null"),
])  # fmt: skip
def test_a_native_file_that_no_guess_reads_is_refused_as_what_it_is(tmp_path, line, said, place):
    lines = [json.dumps({"question": q, "answer": A, "contexts": C[:1]}) for q in (Q, Q2)]
    lines[place - 1] = line
    source = tmp_path / "native.jsonl"
    source.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match=f":{place}{said}"):
        start_from(source, tmp_path / "folder")


@pytest.mark.parametrize(("name", "contents", "said"), DOUBTED, ids=[row[0] for row in DOUBTED])
def test_what_only_a_person_can_tell_is_asked(here, name, contents, said):
    start = start_from(write(here / name, contents), here / "folder")
    assert not start.folder.is_runnable
    assert said in " ".join(start.to_fill_in)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["odd.jsonl", "odd.csv"])
@pytest.mark.parametrize(("odd", "unread"), [({"foo": "x"}, "foo"), ({"gains": "x"}, "gains"), ({"reference": 5, "foo": 1}, "foo")])
def test_beside_an_odd_field_all_others_are_read_as_the_native_form_has_them(here, name, odd, unread):
    chunks, labels = [{"id": f"d{i}", "text": text} for i, text in enumerate(C)], ["d0"]
    if name == "odd.csv":
        chunks, labels = json.dumps(chunks), json.dumps(labels)
    row = {"id": "q1", "question": Q, "answer": A, "contexts": chunks, "relevant_chunks": labels, "category": "shop"}
    start = start_from(write(here / name, [row | odd]), here / "folder")
    assert f"not read: {unread}" in start.remarks
    case = start.reading.probe[0]
    assert [chunk.id for chunk in case.output.chunks] == ["d0", "d1"]
    assert (list(case.sample.relevant_chunks), case.sample.category) == (["d0"], "shop")


@pytest.mark.slow
@pytest.mark.parametrize(("row", "references"), [
    ({"answer": ["six", "6 pm"]}, ["six", "6 pm"]), ({"answers": {"text": ["six"], "answer_start": [3]}}, ["six"]),
    ({"answer": {"value": "six", "aliases": ["six", "6"]}}, ["six", "6"]), ({"gold_answer": "six"}, ["six"]),
    ({"answers": [6, 18]}, ["6", "18"]),
])  # fmt: skip
def test_questions_with_right_answers_alone_are_for_a_system(here, row, references):
    start = start_from(write(here / "d.jsonl", [{"question": Q, **row}]), here / "folder")
    assert not start.folder.is_runnable
    assert next(field.value for field in start.first if field.field == "references") == references


@pytest.mark.slow
def test_each_file_has_a_folder_of_its_own(here):
    files = [Path(name) for name in ("数据.jsonl", "报告.jsonl", "a/d.jsonl", "b/d.jsonl", "données.csv", "a=b.jsonl", "nan.jsonl")]
    folders = []
    for file in files:
        file.parent.mkdir(exist_ok=True)
        folder = folder_for(write(file, [{"question": Q, "answer": A}]))
        folder.mkdir()
        marker = {"source": f"../{file}", "name": folder.name, "is_runnable": True, "left_out": {}, "guessed": {}, "files": {}}
        (folder / MARKER).write_text(json.dumps(marker), encoding="utf-8")
        assert folder_for(file) == folder
        folders.append(folder.name)
    assert all(name.isascii() for name in folders)
    assert len(set(folders)) == len(files)
    assert folders[4:7] == ["donnees", "a_b", "nan_eval"]
