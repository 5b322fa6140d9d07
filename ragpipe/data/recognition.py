"""Which tool wrote a file, told by its structure: the data set's option that reads it, or why none can.

Neither the file's name nor its folder counts. The kinds are the rows of SHAPES, told by names that only one tool uses, and a few
that names alone do not tell: the native form, TREC, folders, archives. And how passages were joined to one text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ragpipe.core import registry
from ragpipe.core.registry import option_files
from ragpipe.data.csv_rows import INDEX_COLUMN
from ragpipe.data.expressions import BadExpression, Expression, looks_printed
from ragpipe.data.file_formats import SUFFIXES, FileHead, read_head, suffix_of
from ragpipe.data.native_form import field_meant
from ragpipe.data.settings import OUTPUT_FIELDS, SAMPLE_FIELDS

NATIVE = "jsonl"
_NATIVE_NAMES = SAMPLE_FIELDS | OUTPUT_FIELDS | {"outputs"}
_NAMES_SHOWN = 5
_MAX_LEVELS = 4  # of objects around a list of records
_MIN_NUMBERS = 2  # columns of numbers that make a table of scores
_BEIR = {"corpus.jsonl", "queries.jsonl"}
_PHASES = {"production_sample", "labeled", "synthetic"}
_SPREADSHEET = (
    "save it as CSV in UTF-8, or: `python -c \"import pandas; pandas.read_excel('FILE').to_csv('FILE.csv', index=False)\"`"
)
_YAML = "write it as JSON: `python -c \"import json, yaml; json.dump(yaml.safe_load(open('FILE')), open('FILE.json', 'w'), default=str)\"`"
_TO_PARQUET = "`python -c \"import datasets; datasets.load_from_disk('FOLDER').to_parquet('FILE.parquet')\"`"
_UNUSABLE_FORMS = {
    "pickle": ("a Python pickle", "loading one can run code: write the data as JSON Lines or Parquet"),
    "html": ("a web page", "it is for people: export the results as JSON (`promptfoo eval --output results.json`)"),
    "spreadsheet": ("a spreadsheet", _SPREADSHEET),
    "zstd": ("a file that zstd packed", "unpack it: `zstd -d FILE`; gzip, bzip2 and xz are read as they are"),
    "yaml": ("YAML", _YAML),
}
_BEIR_PART = "it is a part of a BEIR data set: give the folder with corpus.jsonl, queries.jsonl and qrels/"
_TREC = "a run and its qrels go together: `+experiment=trec dataset.path=FOLDER dataset.files.main=QRELS dataset.files.run=RUN`"


_PLAIN_WORD = re.compile(r"[\w.=/-]*")


@dataclass(frozen=True)
class Recognised:
    """What a file was recognised as: the option of the group `dataset` that reads it (empty where none can: `unusable` says why and
    what to do), what it is with its article, the names that decided, further arguments of the command line that it needs, and other
    options that fit as well: nothing but the user can tell."""

    option: str
    description: str
    evidence: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    unusable: str = ""

    def sentence(self, path: str) -> str:
        """On one line: what the file looks like, by which names, and the arguments that read it."""
        names = f" ({', '.join(self.evidence[:_NAMES_SHOWN])})" if self.evidence else ""
        if self.unusable:
            return f"this looks like {self.description}{names}: {self.unusable}"
        either = " or ".join(f"dataset={option}" for option in (self.option, *self.others))
        arguments = [argument if _PLAIN_WORD.fullmatch(argument) else _quoted(argument) for argument in self.arguments]
        return f"this looks like {self.description}{names}: {' '.join([either, f'dataset.path={path}', *arguments])}"


def _quoted(argument: str) -> str:
    """An argument as a shell and the command line take it."""
    key, _, value = argument.partition("=")
    return f"""'{key}="{value}"'"""


def recognise(path: Path) -> Recognised | None:
    """What the file or folder is; None where its shape is unknown. Raises OSError where it cannot be read."""
    head = read_head(path)
    if head.form == "folder":
        return _folder(head)
    found = _by_form(head) or _by_names(head) or _native(head) or _numbers(head)
    if found is None or found.unusable:
        return found
    return replace(found, arguments=(*found.arguments, *reader_arguments(path, head, found.option)))


def foreign_shape(path: Path, display_path: str) -> str:
    """A line for the title of an error: what else a file looks like that was taken for the native form; empty where nothing."""
    try:
        found = recognise(path)
    except OSError:
        return ""
    is_plain = found is None or (found.option == NATIVE and not found.arguments)
    return "" if found is None or is_plain else f"\n  {found.sentence(display_path)}"


_WHOLE_OBJECTS = ("entries(@)[].merge({id: key}, value)", "rows(@)")  # records by id, and as columns


def record_list(head: FileHead, typed: str | None = None) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """The path of the records within a JSON document, empty where they are the document, and the first of them.

    The path is that of the only list of objects among the document's own names, of the one that has questions, or of the longest of
    several; where there is none, among the names of the objects in it, and so on. An object of questions by id, or of columns with
    questions, is made into records. A `typed` path comes first.
    """
    if head.records or not isinstance(head.document, dict):
        return "", head.records
    for path in [typed] if typed else _WHOLE_OBJECTS:
        with suppress(BadExpression):
            records = Expression(path)(head.document)
            if _is_list_of_objects(records) and (typed or all(map(_has_question, records))):
                return path, tuple(records)
    level: dict[str, Any] = {"": head.document}
    for _ in range(_MAX_LEVELS):
        items = ((path, name, value) for path, parent in level.items() for name, value in parent.items())
        values = {f"{path}.{_name(name)}".removeprefix("."): value for path, name, value in items}
        lists = {path: value for path, value in values.items() if _is_list_of_objects(value)}
        if lists:
            asked = {path for path, values in lists.items() if "question" in map(field_meant, values[0])}
            path = max(lists, key=lambda path: (path in asked, len(lists[path])))
            return path, tuple(lists[path])
        level = {path: value for path, value in values.items() if isinstance(value, dict)}
    return "", ()


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else json.dumps(name, ensure_ascii=False)


def _has_question(record: Mapping[str, Any]) -> bool:
    return any(field_meant(name) == "question" and isinstance(value, str) for name, value in record.items())


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _folder(head: FileHead) -> Recognised | None:
    if set(head.names) >= _BEIR and any(name.startswith("qrels/") for name in head.names):
        return Recognised("beir", "a BEIR data set", tuple(sorted(_BEIR)))
    phases = sorted({name.split("/")[0] for name in head.names} & _PHASES)
    if phases and any(name.endswith((".json", ".jsonl")) for name in head.names):
        return Recognised("eval_set", "an evaluation set in three phases", tuple(f"{phase}/" for phase in phases))
    if "dataset_dict.json" in head.names:
        parts = sorted({name.split("/")[0] for name in head.names if name.endswith("/state.json")})
        fix = f"give the folder of one split: {', '.join(parts)}"
        return Recognised("", "data sets that Hugging Face `save_to_disk` wrote", ("dataset_dict.json",), unusable=fix)
    tables = [name for name in head.names if name.endswith(".arrow")]
    if "state.json" in head.names and tables:
        fix = f"write its {len(tables)} files as one: {_TO_PARQUET}" if tables[1:] else f"give its file: {tables[0]}"
        return Recognised("", "a data set that Hugging Face `save_to_disk` wrote", ("state.json",), unusable=fix)
    return None


def _by_form(head: FileHead) -> Recognised | None:
    if head.form == "trec":
        return Recognised("", f"TREC {head.text}" if head.text == "qrels" else "a TREC run", unusable=_TREC)
    if head.form == "zip":
        return _archive(head.names)
    if head.form == "yaml" and re.search(r"^evalId:", head.text, re.MULTILINE):
        fix = "YAML is not read: `promptfoo eval --output results.json` writes the same results"
        return Recognised("", "promptfoo results in YAML", ("evalId", "results"), unusable=fix)
    description, fix = _UNUSABLE_FORMS.get(head.form, ("", ""))
    return Recognised("", description, unusable=fix) if description else None


def _archive(names: Sequence[str]) -> Recognised:
    if any(name.startswith("_journal/") or name == "header.json" for name in names):
        fix = "it is packed: `inspect log dump FILE > log.json` (or `inspect log convert --to json`) writes it as JSON"
        return Recognised("", "an Inspect log", ("header.json",), unusable=fix)
    if any(name.startswith("xl/") for name in names):
        return Recognised("", "a spreadsheet", unusable=_SPREADSHEET)
    return Recognised("", "a zip archive", unusable="unpack it and give the file inside")


def _by_names(head: FileHead) -> Recognised | None:
    """The first known shape whose names are there, with the options of all others that fit."""
    record = head.merged()
    fitting = [(shape, names) for shape in shapes() if (names := _fits(shape, record, head)) is not None]
    if not fitting:
        return None
    shape, names = fitting[0]
    options = dict.fromkeys(known.option for known, _ in fitting if known.option)
    others = tuple(option for option in options if option != shape.option) if shape.option else ()
    return Recognised(shape.option, shape.description, names, shape.arguments, others, shape.unusable)


def _fits(shape: Shape, record: Mapping[str, Any], head: FileHead) -> tuple[str, ...] | None:
    """The names by which the shape fits; None where it does not."""
    value = record if shape.within == "record" else head.document
    if not value or (shape.forms and head.form not in shape.forms):
        return None
    if any(has_name(value, name) for name in shape.none_of) or not all(has_name(value, name) for name in shape.all_of):
        return None
    present = tuple(name for name in shape.any_of if has_name(value, name))
    return (*shape.all_of, *present) if present or not shape.any_of else None


def has_name(value: Any, name: str) -> bool:
    """Whether a name leads somewhere: through objects, into the first object of a list, `*` for any name or rest of one."""
    if isinstance(value, list):
        return bool(value) and has_name(value[0], name)
    if not isinstance(value, Mapping):
        return False
    if name in value:
        return True
    if name.endswith(".*") and any(isinstance(key, str) and key.startswith(name[:-1]) for key in value):
        return True
    first, _, rest = name.partition(".")
    if first == "*":
        return bool(value) and all(has_name(item, rest) for item in value.values())
    return bool(rest) and first in value and has_name(value[first], rest)


def _native(head: FileHead) -> Recognised | None:
    """The native form: a question, and no name that it does not have."""
    path, records = record_list(head)
    names = dict.fromkeys(name for record in records for name in record if name != INDEX_COLUMN)
    if "question" not in names or not names.keys() <= _NATIVE_NAMES or len(names) < 2:
        return None
    return Recognised(NATIVE, "a data set in the native form", tuple(names), (f"dataset.records={path}",) if path else ())


def _numbers(head: FileHead) -> Recognised | None:
    """Files without any text: parts of other data sets, and tables of scores."""
    record, document = head.merged(), head.document
    if {"_id", "text"} <= record.keys() or {"query-id", "corpus-id", "score"} <= record.keys():
        return Recognised("", "a file of a BEIR data set", tuple(record)[:3], unusable=_BEIR_PART)
    if len(record) >= _MIN_NUMBERS and all(isinstance(value, int | float) for value in record.values()):
        fix = "it holds no questions or answers: export them with it"
        return Recognised("", "a table of scores", tuple(record)[:4], unusable=fix)
    if not isinstance(document, dict) or not document:
        return None
    values = list(document.values())
    if all(isinstance(value, int | float) for value in values):
        return Recognised("", "a list of scores", tuple(document)[:4], unusable="it holds no questions or answers")
    inner = [list(value.values()) if isinstance(value, dict) else [] for value in values]
    if all(inner) and all(isinstance(score, int | float) for scores in inner for score in scores):
        fix = f"{_BEIR_PART}, or write it as a TREC run"
        return Recognised("", "retrieval results as scores by query and document", unusable=fix)
    are_texts = all(isinstance(value, str) for value in values) and len({len(key) for key in document}) == 1
    if len(values) >= _MIN_NUMBERS and are_texts:
        fix = "it holds texts without questions: as predictions for SQuAD it goes with the data set, `dataset=squad`"
        return Recognised("", "an object of texts by id", unusable=fix)
    return None


def reader_arguments(path: Path, head: FileHead, option: str = "") -> list[str]:
    """Words for a file whose name does not say its format, unless the option does, and for another separator than a comma."""
    arguments = []
    is_unusual = suffix_of(path) not in SUFFIXES or head.form in ("json_columns", "json_objects")
    if is_unusual and not _sets_format(option):
        arguments.append(f"dataset.format={head.form}")
    if head.form == "csv" and head.delimiter != "," and suffix_of(path) != ".tsv":
        arguments.append(f"dataset.delimiter={head.delimiter}")
    return arguments


def _sets_format(option: str) -> bool:
    """Whether a shipped option says in which format its files are, itself or by the option that it is based on."""
    path = option_files("dataset").get(option)
    text = path.read_text(encoding="utf-8") if path else ""
    if re.search(r"^format:(?! *auto\b)", text, re.MULTILINE):
        return True
    base = re.search(r"^defaults: \[(\w+), _self_\]", text, re.MULTILINE)
    return base is not None and _sets_format(base[1])


@dataclass(frozen=True)
class Shape:
    """How one kind of file is told, and what it is, as in `Recognised`.

    All names of `all_of` and one of `any_of` must be there, and none of `none_of`, in a record or `within` the whole document. A name
    leads through objects and into the first element of lists (`results.vars`); `inputs.*` is any name that begins so. `forms` are
    those in which it is written; any where empty.
    """

    option: str
    description: str
    all_of: tuple[str, ...]
    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()
    within: Literal["record", "document"] = "record"
    forms: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    unusable: str = ""


_RAGAS_PARTS = ("response", "retrieved_contexts", "reference", "reference_contexts", "reference_topics")
SCORES_ONLY = "it holds scores without questions or answers"

_TURNS = (
    "several turns are not read; write a record for each answer to judge: the last human message as question, what was said "
    "before it as history ([{role: user | assistant, text: ...}]), the ai message after it as answer, tool messages as contexts"
)

SHAPES: tuple[Shape, ...] = (
    Shape("", "multi-turn samples of ragas", ("user_input.content",), unusable=_TURNS),
    Shape("ragas", "a ragas EvaluationDataset or evaluation result", ("user_input",), _RAGAS_PARTS),
    Shape(
        "deepeval",
        "deepeval goldens",
        ("input",),
        ("actual_output", "expected_output"),
        ("reference_output", "metrics_data"),
    ),
    Shape(
        "deepeval", "a deepeval test run", ("testCases.input", "testCases.actualOutput", "metricsScores"), within="document"
    ),
    Shape(
        "deepeval", "a deepeval EvaluationResult", ("test_results.input", "test_results.metrics_data"), within="document"
    ),
    Shape("promptfoo", "promptfoo results", ("evalId", "results.results"), within="document", forms=("json",)),
    Shape("promptfoo", "promptfoo result rows", ("vars", "promptIdx", "testIdx", "namedScores")),
    Shape(
        "", "a promptfoo table", ("Status", "Score", "Named Scores", "Grader Reason"), forms=("csv",),
        unusable="its columns repeat for each provider and its scores are rounded: `promptfoo eval --output results.json` "
        "(or `promptfoo export eval ID --output results.json`) writes the same results in full",
    ),
    Shape("langfuse_table", "a table of traces exported in the Langfuse UI", ("id", "timestamp", "input", "output"),
          ("sessionId", "userId", "totalCost", "bookmarked"), ("record_id", "app_id", "traceId"), forms=("csv",)),
    Shape("phoenix_experiment", "a Phoenix experiment", ("example_id", "repetition_number", "input", "output")),
    Shape("phoenix_experiment", "a Phoenix data set", ("node_id",), ("input.*", "input"), ("expected_ids",)),
    Shape("phoenix_experiment", "a Phoenix data set", ("examples.node_id", "examples.input", "examples.output"), within="document"),
    Shape("", "an experiment object of the Phoenix client", ("experiment_id", "task_runs", "evaluation_runs"), within="document",
          unusable="its runs have answers without questions: download the experiment from the server as JSON or CSV"),
    Shape("langsmith", "a LangSmith data set", ("inputs", "outputs", "metadata"), ("dataset_id", "use_source_run_io", "split"),
          ("run_type",)),
    Shape("langsmith", "results of a LangSmith experiment", ("inputs.*", "outputs.*", "execution_time", "example_id")),
    Shape("langsmith", "rows of a LangSmith experiment", ("run.inputs", "run.outputs", "example", "evaluation_results")),
    Shape("langchain", "outputs of a LangChain retrieval chain", ("input", "answer"), ("context.kwargs", "context.page_content")),
    Shape("langchain", "outputs of a LangChain retrieval chain", ("query", "result", "source_documents")),
    Shape("", "a list of LangChain documents", ("page_content", "metadata"), unusable="it holds documents and no questions"),
    Shape("open_rag_eval", "answers for Open RAG Eval", ("query_id", "query", "query_run", "passage_id", "generated_answer")),
    Shape("", "a table of results of Open RAG Eval", ("query_id", "run_1_generated_answer"),
          unusable="its columns hold each run apart: eval_results.json, written beside it, holds the same"),
    Shape("open_rag_eval_results", "results of Open RAG Eval", ("evaluation.query_id", "evaluation.runs"), within="document"),
    Shape("ragchecker", "inputs or results of RAGChecker",
          ("results.query", "results.gt_answer", "results.response", "results.retrieved_context"), within="document"),
    Shape("llamaindex", "a LlamaIndex LabelledRagDataset", ("examples.query", "examples.reference_answer"), within="document"),
    Shape("llamaindex", "evaluation results of LlamaIndex", ("query", "response", "passing", "feedback")),
    Shape("llamaindex", "evaluation results of LlamaIndex", ("*.passing", "*.response", "*.feedback"), within="document"),
    Shape("llamaindex", "responses of a LlamaIndex query engine", ("query.query_str", "response.response")),
    Shape("llamaindex", "retrieval results of LlamaIndex", ("query", "expected_ids", "retrieved_ids", "metric_dict")),
    Shape("", "a LlamaIndex data set for embeddings", ("queries", "corpus", "relevant_docs"), within="document",
          unusable="it holds questions and passages and no answers: it is for training embeddings"),
    Shape("", "predictions of a LlamaIndex RAG data set", ("predictions.response", "predictions.contexts"), within="document",
          unusable="it holds answers without questions, which go with a LabelledRagDataset by position"),
    Shape("", "retrieval metric values of LlamaIndex", ("query", "hit_rate", "mrr"), none_of=("retrieved_ids",),
          unusable=f"{SCORES_ONLY} of a retriever: export the RetrievalEvalResults"),
    Shape("squad", "a SQuAD data set", ("data.paragraphs.qas",), within="document"),
    Shape("inspect_ai", "an Inspect log", ("eval.task", "plan", "status", "version"), within="document"),
    Shape("golden_set", "a golden set with gold supports", (), ("gold_supports", "goldSupports")),
    Shape("query_logs", "query logs with courses as context", ("queryLogId", "question")),
    Shape("eval_set", "an evaluation set", (), ("input.query",), ("run_type",)),
    Shape("eval_set", "an evaluation set", ("query",), ("expected_behavior", "must_use_direct_quotes", "context_contains",
          "context_has", "expected_citations", "human_faithfulness", "relevant_doc_ids")),
    Shape("graphrag", "a table of GraphRAG answers", ("question", "ground_truth"),
          ("factual_accuracy_percentage", "ragas_faithfulness", "answers.local_search", "answers.basic_search")),
)  # fmt: skip
"""In the order in which they are tried, after those of extras and plugins; a file that several options fit is told with all of them."""


def shapes() -> tuple[Shape, ...]:
    """All known shapes in the order in which they are tried."""
    others = (registry.find("shapes", name) for name in registry.names("shapes"))
    return (*(shape for rows in others for shape in rows), *SHAPES)


PRINTED = "a printed list"
_LOOKED_AT = 100_000  # characters of a text
_SURE, _PERHAPS = 0.2, 0.5  # of the texts that must have the sign; a case with one passage has none
_NUMBERED = (
    (r"\[{}\]", True),
    (r"【{}】", True),
    (r"(?:document|doc|context|passage|source|chunk|text|snippet) ?[\[(#]?{}[\])]?(?::|\.(?=\s)|\)|\n)", True),
    (r"\({}\)(?=\s)", False),
    (r"{}[.)](?=\s)", False),
)
"""How passages are numbered, and whether that is certain: steps of one passage are numbered too."""
_RUN = re.compile(
    r"^[ \t]*([-=*_#~+])\1{2,}[ \t]*$|\|{3,}|;{2,}|@{2,}|§{2,}|(?<=\s)(?:\|{2}|~{2,}|-{3,}|={3,}|\*{3,}|/{2,})(?=\s)|(?<=\S )#{2,}(?= )",
    re.MULTILINE,
)
_TAG = re.compile(
    r"<\|?/?[a-z_]*(?:sep|separator|doc|document|passage|chunk|context|eos|split|endoftext)[a-z_]*(?: [^<>]{0,80})?\|?/?>|</?s>|\[/?(?:sep|doc|split|eos)\]"
    r"|[\x1c-\x1f\x00]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Separator:
    """What stands between passages: how messages name it, the regular expression that cuts there, how many of how many texts have it.
    `is_certain`: it is no sign of a usual text."""

    label: str
    pattern: str
    is_certain: bool
    count: int = 0
    texts: int = 0


class JoinedPassages:
    """Counts the signs over texts that may each hold several passages."""

    def __init__(self, texts: Iterable[str] = ()):
        self.texts, self._several = 0, False
        self._found: Counter[Separator] = Counter()
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Take a text into account; a blank one does not count."""
        if text.strip():
            self.texts += 1
            self._found.update(list(dict.fromkeys(_signs(text[:_LOOKED_AT]))))

    def add_case(self, passages: Sequence[str]) -> None:
        """Take a case into account: where every case has one passage at most, each may be several."""
        self._several = self._several or len(passages) > 1
        if passages and not self._several:
            self.add(passages[0])

    def separator(self) -> Separator | None:
        """The sign that most of the texts have, a certain one before others; None where there is none, and where a case has several passages."""
        if self._several:
            return None
        for sign, count in sorted(self._found.items(), key=lambda item: (not item[0].is_certain, -item[1])):
            if count >= self.texts * (_SURE if sign.is_certain else _PERHAPS):
                return Separator(sign.label, sign.pattern, sign.is_certain, count, self.texts)
        return None


def _signs(text: str) -> Iterator[Separator]:
    if looks_printed(text):
        yield Separator(PRINTED, "", True)
    for form, is_certain in _NUMBERED:
        if first := re.match(rf"\s*({form.format(1)})", text, re.IGNORECASE):
            before = "" if form.startswith("【") else r"(?:^|\s)"
            yield Separator(f"{first[1].strip()} ..", f"(?i){before}{form.format('[0-9]+')}", is_certain)
    for sign in [*_RUN.finditer(text), *_TAG.finditer(text)]:
        if text[: sign.start()].strip() and text[sign.end() :].strip():
            mark = sign[0].strip(" \t")
            name = re.fullmatch(r"</?(\w+)[^<>]*>", mark)
            run = f"{re.escape(mark[0])}{{{min(3, len(mark))},}}" if len(set(mark)) == 1 else re.escape(mark)
            run = rf"</?{name[1]}\b[^<>]*>" if name else run
            yield Separator(repr(mark[:3] if len(set(mark)) == 1 else mark)[1:-1], run, True)
    if re.search(r"\S[ \t]*\n[ \t]*\n\s*\S", text):
        yield Separator(r"\n\n", r"\n[ \t]*\n", False)
    if re.search(r"[^\s|]\s*\|\s*[^\s|]", text) and not re.search(r"^\s*\|", text, re.MULTILINE):
        yield Separator("|", r"\|", False)
