"""The shapes that other tools write, told by the names that only they use: one row per kind of file.

A name is looked up in a record (an element of a list, a line, a row) or in the document, and leads through objects and into
the first element of lists: `results.vars`. `inputs.*` is any name that begins so. A row with `unusable` is a file that is
known and that no data set can be made of: the text says why, and what to export instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Shape:
    """How one kind of file is told.

    Attributes:
        option: the data set's option; empty where the file is unusable.
        description: what it is, with its article: "a ragas EvaluationDataset".
        all_of: names that must all be there.
        any_of: names of which one must be there.
        none_of: names that tell another kind.
        within: whether the names are those of a record or of the whole document.
        forms: the forms in which it is written; any where empty.
        words: further words of the command line that it needs.
        unusable: why no data set can be made of it, and what to do.
    """

    option: str
    description: str
    all_of: tuple[str, ...]
    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()
    within: Literal["record", "document"] = "record"
    forms: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    unusable: str = ""


_RAGAS_PARTS = ("response", "retrieved_contexts", "reference", "reference_contexts", "reference_topics")
_SCORES_ONLY = "it holds scores without questions or answers"
_SPANS_INSTEAD = "a row of it is a part of a case, and its lists are lost: export the spans (get_spans_dataframe)"
_LINKS_ONLY = "it links ids and holds neither questions nor answers"

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
    Shape("langfuse", "Langfuse traces", ("input", "output"), ("observations", "htmlPath", "totalCost", "bookmarked"),
          ("record_id", "app_id", "traceId"), forms=("json", "jsonl", "json_objects", "json_columns", "parquet")),
    Shape("langfuse_table", "a table of traces exported in the Langfuse UI", ("id", "timestamp", "input", "output"),
          ("sessionId", "userId", "totalCost", "bookmarked"), ("record_id", "app_id", "traceId"), forms=("csv",)),
    Shape("langfuse", "a page of Langfuse traces", ("data.input", "data.output", "data.timestamp", "meta"), within="document"),
    Shape("langfuse", "a page of Langfuse observations", ("data.traceId", "data.type", "data.startTime", "meta"),
          within="document"),
    Shape("langfuse", "Langfuse observations", ("traceId", "type", "startTime"), ("input", "output")),
    Shape("", "a page of Langfuse data set items", ("data.expectedOutput", "data.datasetId", "meta"), within="document",
          unusable="it holds questions with references and no answers: conf/dataset/langfuse.yaml shows how traces are joined with it"),
    Shape("", "a page of Langfuse scores", ("data.traceId", "data.value", "data.source", "meta"), within="document",
          unusable=f"{_SCORES_ONLY}: export the traces, which hold their scores"),
    Shape("", "a Langfuse data set run", ("datasetRunItems", "datasetId"), within="document",
          unusable=f"{_LINKS_ONLY}: export the traces"),
    Shape("phoenix", "spans of a Phoenix server", ("context.trace_id", "context.span_id", "span_kind"),
          ("attributes", "attributes.*")),
    Shape("", "a table of retrieved documents by Phoenix", ("context.span_id", "document_position", "document"), unusable=_SPANS_INSTEAD),
    Shape("", "a table of questions, answers and contexts by Phoenix", ("context.span_id", "input", "output", "context"), unusable=_SPANS_INSTEAD),
    Shape("phoenix_experiment", "a Phoenix experiment", ("example_id", "repetition_number", "input", "output")),
    Shape("phoenix_experiment", "a Phoenix data set", ("node_id",), ("input.*", "input"), ("expected_ids",)),
    Shape("phoenix_experiment", "a Phoenix data set", ("examples.node_id", "examples.input", "examples.output"), within="document"),
    Shape("", "an experiment object of the Phoenix client", ("experiment_id", "task_runs", "evaluation_runs"), within="document",
          unusable="its runs have answers without questions: download the experiment from the server as JSON or CSV"),
    Shape("", "annotations of Phoenix", ("span_id", "annotation_name", "annotator_kind"),
          unusable=f"{_SCORES_ONLY}: export the spans"),
    Shape("langsmith", "a LangSmith data set", ("inputs", "outputs", "metadata"), ("dataset_id", "use_source_run_io", "split"),
          ("run_type",)),
    Shape("langsmith", "results of a LangSmith experiment", ("inputs.*", "outputs.*", "execution_time", "example_id")),
    Shape("langsmith", "rows of a LangSmith experiment", ("run.inputs", "run.outputs", "example", "evaluation_results")),
    Shape("langsmith_runs", "runs of LangSmith", ("run_type", "trace_id", "parent_run_id", "inputs"),
          none_of=("child_runs.run_type",)),
    Shape("langsmith_runs", "traced runs of LangChain", ("run_type", "inputs", "outputs", "child_runs.run_type")),
    Shape("", "LangSmith feedback", ("run_id", "key", "score", "feedback_source"), unusable=f"{_SCORES_ONLY}: export the runs"),
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
          unusable=f"{_SCORES_ONLY} of a retriever: export the RetrievalEvalResults"),
    Shape("squad", "a SQuAD data set", ("data.paragraphs.qas",), within="document"),
    Shape("openinference", "an OTLP export of spans", ("resourceSpans",)),
    Shape("openinference", "an OTLP export of spans", ("resourceSpans",), within="document"),
    Shape("openinference", "spans of OpenTelemetry's console exporter", ("context.trace_id", "context.span_id", "kind", "attributes")),
    Shape("mlflow", "traces or evaluation results of MLflow", ("trace_id", "request", "response", "execution_duration")),
    Shape("mlflow", "MLflow traces", ("info.trace_id", "data.spans")),
    Shape("", "TruLens records", ("record_id", "app_id", "record_json", "input", "output"),
          unusable="they hold no contexts: the table trulens_events does (dataset=trulens), and conf/dataset/trulens.yaml shows how this "
          "feedback is joined with it"),
    Shape("trulens", "events of a TruLens database", ("record_attributes", "event_id", "record_type")),
    Shape("", "a TruLens leaderboard", ("app_name", "app_version", "latency", "total_cost"), none_of=("record_id",),
          unusable=f"{_SCORES_ONLY}: export the records"),
    Shape("inspect_ai", "an Inspect log", ("eval.task", "plan", "status", "version"), within="document"),
    Shape("golden_set", "a golden set with gold supports", (), ("gold_supports", "goldSupports")),
    Shape("query_logs", "query logs with courses as context", ("queryLogId", "question")),
    Shape("eval_set", "an evaluation set", (), ("input.query",), ("run_type",)),
    Shape("eval_set", "an evaluation set", ("query",), ("expected_behavior", "must_use_direct_quotes", "context_contains",
          "context_has", "expected_citations", "human_faithfulness", "relevant_doc_ids")),
    Shape("graphrag", "a table of GraphRAG answers", ("question", "ground_truth"),
          ("factual_accuracy_percentage", "ragas_faithfulness", "answers.local_search", "answers.basic_search")),
)  # fmt: skip
"""In the order in which they are tried; a file that several options fit is told with all of them."""
