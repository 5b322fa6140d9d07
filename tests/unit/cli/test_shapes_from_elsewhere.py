"""Files as data sets and frameworks write them: the first case that is read, or the doubt that is told."""

import json

import pytest

from ragpipe.cli.file_start import start_from
from ragpipe.core.errors import DataError

Q, Q2, A, R = "How long is the warranty?", "When do shops open?", "The warranty lasts two years.", "Two years."
C = ["The warranty lasts two years.", "Shops open at nine."]
JOINED = "The warranty lasts two years. Shops open at nine."

# name, contents (a list is written as JSON Lines where the name says so), the texts of the chunks, the references
READ = [
    ("columns.json", {"questions": [Q, Q2], "answers": [A, A], "contexts": [C, C], "ground_truths": [[R], [R]]}, C, [R]),
    ("columns_and_facts.json", {"name": "x", "version": 1, "question": [Q, Q2], "answer": [A, A], "contexts": [C, C]}, C, []),
    ("columns_inside.json", {"data": {"question": [Q, Q2], "answer": [A, A], "contexts": [C, C]}, "meta": {"n": 2}}, C, []),
    ("lists_by_id.json", {"questions": [{"id": "a", "question": Q}, {"id": "b", "question": Q2}],
                          "answers": [{"id": "a", "answer": A, "contexts": C}, {"id": "b", "answer": A, "contexts": C}]}, C, []),
    ("data_and_meta.json", {"meta": [{"k": 1}] * 9, "data": [{"question": q, "answer": A, "contexts": C} for q in (Q, Q2)]}, C, []),
    ("results_and_errors.json", {"errors": [{"code": 1}] * 9, "results": [{"query": q, "response": A, "contexts": C} for q in (Q, Q2)]}, C, []),
    ("hotpot.jsonl", [{"_id": "1", "question": Q, "prediction": A, "context": [["Title", C], ["Other", ["It rained."]]]}], [JOINED, "It rained."], []),
    ("hotpot_columns.jsonl", [{"id": "1", "question": Q, "prediction": A, "context": {"title": ["T", "O"], "sentences": [C, ["It rained."]]}}],
     [JOINED, "It rained."], []),
    ("rounds.jsonl", [{"question": Q, "response": A, "contexts": [C, C]}], C + C, []),
    ("scored.jsonl", [{"question": Q, "response": A, "retrieved_passages": [[C[0], 0.9], [C[1], 0.5]]}], C, []),
    ("score_first.jsonl", [{"question": Q, "response": A, "retrieved_passages": [[0.9, C[0]], [0.5, C[1]]]}], C, []),
    ("batched_documents.jsonl", [{"query": Q, "response": A, "documents": [[{"page_content": c, "metadata": {}} for c in C]]}], C, []),
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
    ("cells.csv", f"question,response,contexts\n{Q},{A},\"[['{C[0]}'], ['{C[1]}']]\"\n", C, []),
]  # fmt: skip
DOUBTED = [
    ("two_answers.jsonl", [{"question": Q, "prediction": A, "answer": R, "context": [["Title", C]]}], "either prediction or answer"),
    ("titled.jsonl", [{"question": Q, "response": A, "contexts": [["T", C[0]], ["O", C[1]]]}], "contexts[*][1]"),
    ("lists_of_other_ids.json", {"questions": [{"id": "a", "question": Q}], "answers": [{"id": "b", "answer": A}]}, ""),
]  # fmt: skip


def write(path, contents):
    if isinstance(contents, str):
        text = contents
    elif path.suffix == ".jsonl":
        text = "".join(json.dumps(record) + "\n" for record in contents)
    else:
        text = json.dumps(contents)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "contents", "chunks", "references"), READ, ids=[row[0] for row in READ])
def test_a_shape_is_read(tmp_path, monkeypatch, name, contents, chunks, references):
    monkeypatch.chdir(tmp_path)
    start = start_from(write(tmp_path / name, contents), tmp_path / "folder")
    case = start.reading.probe[0]
    assert (case.sample.question, case.output.answer) == (Q, A)
    assert [chunk.text for chunk in case.output.chunks] == chunks
    assert list(case.sample.references or ()) == references


def test_lists_of_other_lengths_are_refused(tmp_path):
    source = write(tmp_path / "lists.json", {"questions": [Q, Q2], "answers": [A]})
    with pytest.raises(DataError, match="a list of objects"):
        start_from(source, tmp_path / "folder")


@pytest.mark.parametrize(("name", "contents", "said"), DOUBTED, ids=[row[0] for row in DOUBTED])
def test_what_only_a_person_can_tell_is_asked(tmp_path, monkeypatch, name, contents, said):
    monkeypatch.chdir(tmp_path)
    start = start_from(write(tmp_path / name, contents), tmp_path / "folder")
    assert start.reading is None or not start.reading.probe
    assert said in " ".join(start.to_fill_in)
