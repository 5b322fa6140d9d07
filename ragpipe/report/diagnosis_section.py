"""What is wrong and what to try: the diagnoses and failure modes of `metrics.json`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ragpipe.core.errors import TRANSIENT
from ragpipe.data.index_manifest import Coverage, IndexCoverage
from ragpipe.report.charts import Problem, problem_table
from ragpipe.report.model import (
    MARKDOWN,
    PAGES,
    TERMINAL,
    CaseExcerpt,
    CaseName,
    Cell,
    Chart,
    ItemList,
    Note,
    Prose,
    RichText,
    Section,
    SectionPart,
    Table,
    TableColumn,
    TableRow,
    Verbatim,
    joined,
    pieces_of,
)
from ragpipe.report.page_file import page_address
from ragpipe.report.report_data import (
    ReportData,
    by_importance,
    counted_per_iteration,
    iteration_count,
    method_groups,
    share_of_cases,
)
from ragpipe.report.styled_text import count_with_share, plural, whole


def diagnosis_section(data: ReportData) -> Section | None:
    """The diagnoses with advice and examples, and the failure modes by method; None when nothing is wrong."""
    metrics = data.metrics
    tables = [*_diagnoses(metrics), *_failure_modes(metrics)]
    if not tables:
        return None
    per_iteration = (Note(text, shown_in=PAGES) for text in counted_per_iteration(metrics))
    parts: tuple[SectionPart, ...] = (*_problems(metrics), *_on_terminal(data), *tables, *per_iteration)
    return Section("problems", "What is wrong", parts, folded=True)


def most_frequent(metrics: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The diagnoses of `metrics.json`, the most frequent first, ties in their order of priority."""
    return sorted(metrics.get("diagnosis") or (), key=lambda diagnosis: -int(diagnosis["n"]))


PROBLEMS = 3
"""Diagnoses that a terminal names."""
_SHARES = 4  # methods whose shares stand beside each other on a terminal


def _on_terminal(data: ReportData) -> Iterator[Table]:
    """The most frequent diagnoses: share of the cases, by method for a few, one case with its question, and what is wrong."""
    metrics, diagnoses = data.metrics, most_frequent(data.metrics)
    if not diagnoses:
        return
    groups = metrics["by"].get("method") or {}
    has_shares = 1 < len(groups) <= _SHARES
    rows = []
    for diagnosis in diagnoses[:PROBLEMS]:
        shares = [f"{diagnosis['n'] / (metrics['n_cases'] * iteration_count(metrics)):.1%}"]
        if has_shares:
            shares = [_share_of_method(diagnosis["name"], group, metrics) for group in groups.values()]
        cases = [CaseName.of(case) for case in diagnosis["examples"][:1]]
        question = next((data.questions.get(case.sample_id, "") for case in cases), "")
        texts = (Verbatim(question), Verbatim(diagnosis["message"]))
        rows.append(TableRow((*shares, Verbatim(diagnosis["name"]), *(cases or ("",)), *texts)))
    shares_columns = (TableColumn("") for _ in (groups if has_shares else " "))
    columns = (*shares_columns, *(TableColumn("", is_text=True, fills=place > 1) for place in range(4)))
    named = f" in {', '.join(groups)}" if has_shares else ", share of cases"
    more = f" ({plural(len(diagnoses) - PROBLEMS, 'more problem')})" if len(diagnoses) > PROBLEMS else ""
    yield Table(columns, tuple(rows), Verbatim(f"wrong most often{named}{more}:"), key_columns=0, shown_in=TERMINAL)


_OPEN = 8  # problems in sight on the page


def _problems(metrics: Mapping[str, Any]) -> Iterator[Chart]:
    """The most frequent diagnoses by method with what to do, the rarer ones folded; failure modes where there is none."""
    found = most_frequent(metrics)
    rows = [_problem(diagnosis["name"], diagnosis, metrics) for diagnosis in found]
    if not found:
        modes = sorted((metrics["overall"].get("failure_modes") or {}).items(), key=lambda item: -int(item[1]["n"]))
        rows = [_problem(name, None, metrics) for name, mode in modes if mode["n"]]
    methods = [(number, method) for number, method in enumerate(method_groups(metrics))]
    cases = "cases, and their share of all of the method" if len(methods) > 1 else "cases and their share"
    yield Chart("", problem_table(rows[:_OPEN], methods, "what is wrong"), f"{cases.capitalize()}; a count opens them.")
    if len(rows) > _OPEN:
        yield Chart(f"all {len(rows)}", problem_table(rows[_OPEN:], methods, "what is wrong, the rarer ones"), folded=True)


def _problem(name: str, diagnosis: Mapping[str, Any] | None, metrics: Mapping[str, Any]) -> Problem:
    """A row whose counts open the cases of the method with this diagnosis or failure mode, which may have equal names."""
    kind, times, counts = "failure_modes" if diagnosis is None else "diagnosis", iteration_count(metrics), []
    groups = method_groups(metrics)
    for number, (method, group) in enumerate(groups.items()):
        n = ((group.get(kind) or {}).get(name) or {"n": 0})["n"] / times
        address = page_address(method=method if len(groups) > 1 else None, mode=name)
        counts.append((number, whole(round(n)), n / max(group["n_cases"], 1), address))
    message, advice = ("", []) if diagnosis is None else (diagnosis["message"], advice_for(diagnosis, metrics))
    return Problem(name, page_address(mode=name), message, next(iter(advice), ""), counts)


def _share_of_method(name: str, group: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """The share of a method's cases with a diagnosis."""
    found = (group.get("diagnosis") or {}).get(name) or {"n": 0}
    return f"{found['n'] / max(group['n_cases'] * iteration_count(metrics), 1):.1%}"


def _diagnoses(metrics: Mapping[str, Any]) -> Iterator[Table]:
    heads = ("diagnosis", "cases", "what is wrong", "try", "for example")
    columns = tuple(TableColumn(head, is_text=head != "cases") for head in heads)
    rows = []
    for diagnosis in most_frequent(metrics):
        advice = ItemList(tuple(map(Prose, advice_for(diagnosis, metrics))))
        examples = ItemList(tuple(CaseName.of(case) for case in diagnosis["examples"]), separator=", ")
        share = share_of_cases(diagnosis["n"], metrics)
        rows.append(TableRow((Verbatim(diagnosis["name"]), share, Prose(diagnosis["message"]), advice, examples)))
    if rows:
        yield Table(columns, tuple(rows), "Diagnosis", layout="entries", shown_in=PAGES)


def _failure_modes(metrics: Mapping[str, Any]) -> Iterator[Table | Note]:
    """The most frequent mode first."""
    overall, groups = metrics["overall"], method_groups(metrics)
    modes = {name: mode for name, mode in (overall.get("failure_modes") or {}).items() if mode["n"] or mode.get("n_items")}
    if not modes:
        return
    rows = []
    for name, mode in sorted(modes.items(), key=lambda item: -item[1]["n"]):
        counts = (group["failure_modes"].get(name, {}).get("n", 0) for group in groups.values())
        items = Prose(f"{whole(mode['n_items'])} {metrics['failure_items'][name]}" if "n_items" in mode else "")
        shares = (*mode_shares(mode["n"], metrics), whole(mode["n_judged"]))
        rows.append((Verbatim(name), whole(mode["n"]), *shares, items, *map(whole, counts)))
    figures = ("cases", "of all cases", "of cases with one", "of all modes", "cases where it can be decided", "items")
    yield Table.of(("failure mode", *figures, *map(Verbatim, groups)), rows, title="Failure modes", shown_in=PAGES)
    yield Note(
        f"{whole(overall['n_with_failure_mode'])} cases have a failure mode, some have several; "
        f"{whole(overall['n_failed_without_mode'])} cases miss a threshold but match no failure mode. Items are counted in all "
        "cases, also in those that passed.",
        shown_in=PAGES,
    )
    if undecided := metrics.get("not_applicable", {}).get("failure_modes"):
        names = pieces_of(joined(tuple(map(Verbatim, undecided)), ", "))
        yield Note(("Not applicable, because this run lacks their scores: ", *names, "."), shown_in=PAGES)


def mode_shares(n: int, metrics: Mapping[str, Any]) -> tuple[str, str, str]:
    """`n` cases with a failure mode as a share of all cases, of those with any mode, and of all modes together."""
    overall = metrics["overall"]
    cases = metrics["n_cases"] * iteration_count(metrics)
    of_cases, of_with_mode, of_modes = (
        f"{n / total:.1%}" if total else "-" for total in (cases, overall["n_with_failure_mode"], overall["n_failure_modes"])
    )
    return of_cases, of_with_mode, of_modes


def low_scores_section(data: ReportData) -> Section | None:
    """The bands of `low_scores.json` with what to try, the groups where low cases are frequent, and the reasons that come back; None
    where no value lies in a band. Of several iterations those of the last one."""
    names = by_importance([name for name, low in data.low_scores.items() if any(b["n"] for b in low["bands"])], data.metrics)
    if not names:
        return None
    scores = {name: data.low_scores[name] for name in names}
    bands = []
    for name, low in scores.items():
        for band in low["bands"]:
            advice = ItemList(tuple(map(Prose, band["advice"])))
            examples = ItemList(tuple(CaseName.of(case) for case in band["examples"]), separator=", ")
            share = _of(band["n"], low["n_ok"])
            bands.append(TableRow((Verbatim(name), Verbatim(band["name"]), share, advice, examples)))
    groups = (
        TableRow(
            (Verbatim(name), Verbatim(f"{field}: {group['value']}"), _of(group["n_low"], group["n"]), f"{group['lift']:.2g} x")
        )
        for name, low in scores.items()
        for field, found in low["patterns"].items()
        for group in found
    )
    reasons = (
        TableRow((Verbatim(name), Verbatim(reason), _of(n, low["n_low"])))
        for name, low in scores.items()
        for reason, n in (*((each["reason"], each["n"]) for each in low["reasons"]), *low["flags"].items())
    )
    heads = {
        "Bands": (bands, ("score", "band", "cases", "try", "for example")),
        "Where low cases cluster": (groups, ("score", "cases of", "low cases", "as frequent as among all")),
        "Why they are low": (reasons, ("score", "reason", "low cases")),
    }
    tables = (
        Table(tuple(TableColumn(head, is_text=head not in _COUNTED) for head in columns), tuple(rows), title)
        for title, (rows, columns) in heads.items()
    )
    title = f"Low scores of iteration {data.iteration}" if iteration_count(data.metrics) > 1 else "Low scores"
    return Section("low", title, tuple(table for table in tables if table.rows), folded=True, shown_in=PAGES)


_COUNTED = ("cases", "low cases", "as frequent as among all")


def _of(n: int, total: int) -> str:
    return f"{whole(n)} of {whole(total)} ({n / total:.1%})"


def lowest_cases_section(data: ReportData) -> Section | None:
    """Excerpts of the lowest cases of the last iteration; None where no case failed."""
    if not data.lowest:
        return None
    several = iteration_count(data.metrics) > 1
    title = f"Lowest cases of iteration {data.lowest[0]['iteration']}" if several else "Lowest cases"
    names = list(data.metrics["overall"]["scores"])
    excerpts = []
    for row in data.lowest:
        texts = (("Question", row["question"] or ""), ("Answer", row["answer"] or ""))
        excerpts.append(CaseExcerpt(CaseName.of(row), tuple(_excerpt_lines(row, names)), texts))
    return Section("lowest", title, tuple(excerpts), shown_in=MARKDOWN)


def _excerpt_lines(row: Mapping[str, Any], names: Sequence[str]) -> Iterator[RichText]:
    """The overall score, then each score that failed or could not be judged with its reason."""
    if row["overall_score"] is not None:
        yield f"overall_score {row['overall_score']:.2f}"
    failed_by = row["failed_by"] or ()
    for name in names:
        reason = row.get(f"{name}.reason") or ""
        if row.get(f"{name}.passed") is False and name in failed_by:
            yield (Verbatim(name), f" {row[name]:g}", *((": ", Verbatim(reason)) if reason else ()))
        elif row.get(f"{name}.status") == "error":
            yield (Verbatim(name), " error: ", Verbatim(reason))


_EXAMPLES = 5  # documents named in a warning; index.json has all
_TYPES_SHOWN = 40  # types of documents with their own row
_FIGURES = ("total", "without chunks", "not embedded", "chunks attempted", "embedded", "skipped")
_REASONS = {"not_in_manifest": "not in the manifest", "no_chunks": "without chunks", "not_embedded": "no chunk embedded"}


def index_section(data: ReportData) -> Section | None:
    """All documents, then those of each type; None without an index manifest. The terminal shows warnings alone."""
    index = data.index
    if index is None:
        return None
    types = list(index.by_doc_type.items())
    rows = (_row("all", index.overall), *(_row(name, coverage) for name, coverage in types[:_TYPES_SHOWN]))
    heads = ("documents", *_FIGURES, TableColumn("reasons", is_text=True))
    table = Table.of(heads, rows, rows_left_out=len(types[_TYPES_SHOWN:]), shown_in=PAGES)
    notes = (Note(Verbatim(note), shown_in=PAGES) for note in index_notes(index))
    warnings = (Note(Verbatim(warning), "warning", TERMINAL, "index") for warning in index_warnings(index))
    return Section("index", "The index", (table, *notes, *warnings), folded=True)


def index_notes(index: IndexCoverage) -> list[str]:
    """Tokens, versions, and the labelled documents that cannot be retrieved."""
    notes = []
    if tokens := index.tokens:
        low, high = f"least {whole(tokens.min)}", f"most {whole(tokens.max)}"
        notes.append(f"tokens of {whole(tokens.n)} chunks: {low}, mean {tokens.mean:,.1f}, p95 {tokens.p95:,.1f}, {high}")
    kinds = (("chunker", index.chunkers), ("embedding", index.embeddings), ("index version", index.index_versions))
    notes += [f"{kind}: {', '.join(names)}" for kind, names in kinds if names]
    return [*notes, *index_warnings(index)]


def index_warnings(index: IndexCoverage) -> Iterator[str]:
    """What no retrieval can fix: gold documents that are not in the index."""
    if index.gold_missing_count:
        examples = "; ".join(
            f"{gold.document} ({_REASONS[gold.why]}; {', '.join(gold.samples[:3])})" for gold in index.gold_missing[:_EXAMPLES]
        )
        count = f"{whole(index.gold_missing_count)} of {whole(index.gold_documents)}"
        yield f"{count} gold documents are not in the index by its manifest: {examples}"


def _row(name: str, coverage: Coverage) -> tuple[Cell, ...]:
    reasons = tuple((Verbatim(reason), f" {whole(n)}") for reason, n in coverage.skipped_because.items())
    return (
        Verbatim(name),
        whole(coverage.documents),
        count_with_share(coverage.documents_without_chunks, coverage.documents),
        count_with_share(coverage.documents_not_embedded, coverage.documents),
        whole(coverage.chunks_attempted),
        whole(coverage.chunks_embedded),
        count_with_share(coverage.chunks_skipped, coverage.chunks_attempted),
        ItemList(reasons, separator=", "),
    )


MISSING_REPLY = "missing_reply"
MISSING_REPLY_FIX = (
    "name this judge (for vectors: this embedder) with transport=live (and not rejudge.mode=stored, but replay), and only they "
    "are asked for; or take them in from another store with task=store action=import from=FILE. Recorded replies "
    "(store.recorded) are of their own cases and templates: judge=llm judge.model=... transport=live asks a model of yours"
)
_USELESS = "retry_errors"


def transient_errors(metrics: Mapping[str, Any]) -> set[str]:
    """The kinds of failures in `metrics.json` that another start may fix."""
    return error_kinds(metrics) & TRANSIENT


def advice_for(diagnosis: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """The advice of a diagnosis of `metrics.json`, for a report.

    Where replies are missing, the advice that fixes this comes first, and advice to repeat failed calls (`retry_errors`)
    is left out unless something else failed too: a missing reply is not stored as a failure.
    """
    advice: list[str] = list(diagnosis["advice"])
    kinds = error_kinds(metrics)
    if MISSING_REPLY not in kinds or not any(_USELESS in text for text in advice):
        return advice
    others = kinds - {MISSING_REPLY}
    return [f"Replies are missing: {MISSING_REPLY_FIX}.", *(text for text in advice if others or _USELESS not in text)]


def error_kinds(metrics: Mapping[str, Any], names: Collection[str] | None = None) -> set[str]:
    """Why judgements of the scores `names` (None: of all) failed, by `metrics.json`.

    Scores that failed because a part of them failed are not counted.
    """
    scores = metrics["overall"]["scores"]
    chosen = (score for name, score in scores.items() if names is None or name in names)
    return {kind for score in chosen for kind in score.get("errors") or ()} - {"part_error"}
