"""The shapes that other tools write, told by the names that only they use: one row per kind of file.

A name is looked up in a record (an element of a list, a line, a row) or in the document, and leads through objects and into
the first element of lists: `results.vars`. `inputs.*` is any name that begins so. A row with `unusable` is a file that is
known and that no data set can be made of: the text says why, and what to export instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ragpipe.core import registry


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
