"""Hit rate, recall, precision, MRR, nDCG and MAP of the retrieved chunks, and one weighted score of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from ragpipe.core.sample import Case, Sample
from ragpipe.core.score import Score, ScoreColumns, ScoreSpec, Status
from ragpipe.metrics.base import Computed, Prefix
from ragpipe.metrics.shared.judge_metric import Weights, explain_weighted_mean
from ragpipe.metrics.shared.ranking import (
    NEVER,
    Floats,
    Gold,
    RankedList,
    Ranking,
    RequireSnippet,
    Unit,
    first_ranks,
    from_ids,
    from_rows,
    gold_groups,
    gold_of,
    gold_of_groups,
    names_gold,
    rank_values,
    ranked_list_of,
)

Cut = Literal["hit", "recall_all", "recall", "precision", "ndcg", "map"]
Part = Literal["hit", "recall", "precision", "mrr", "ndcg", "map"]
CUTS: tuple[Cut, ...] = ("hit", "recall_all", "recall", "precision", "ndcg", "map")
OF_GROUPS: frozenset[Cut] = frozenset({"recall_all", "precision"})  # what required support groups alone define


class RetrievalMetric(Computed):
    """`hit@k`, `recall_all@k`, `recall@k`, `precision@k`, `ndcg@k`, `map@k` for each k, `mrr` and `retrieval_score`; 0
    to 1.

    Parameters: `k` cut-offs; `unit` document (a document's chunks count once, at their best rank, where the gold is
    documents; a chunk that comes again counts once) or chunk; `order` given (the system's ranks) or trec (score, then id, both descending: equals
    trec_eval); `require_snippet`: anchors match only chunks with a snippet; `measures`: which of the six by k are
    given; `score_k` and `weights` of `retrieval_score` (divided by their sum); `prefix` before all names.

    A gold item earns its gain only at its first match. Precision counts every match, and every chunk that is a member
    of a required support group too; the others count gold items only. `recall_all@k` is skipped without
    `required_support_groups`; a case with no other labels has `recall_all@k` and `precision@k`, and the others are
    skipped (`no_gold_items`). `gains` without listed ids are those of documents or of chunks: `unit` decides, unless
    none of them names one of that kind among the retrieved chunks and some name one of the other. A document without
    an id is known by its chunks' `rel_path`. Needs labels. A case whose labels say that nothing is relevant is skipped
    (`no_relevant_items`: no retrieval is right there). Nothing retrieved is 0.
    """

    needs = frozenset({"labels"})
    reads = frozenset({"contexts"})
    reads_ids = True
    reads_cells = True

    k: list[int] = Field(default=[1, 3, 5, 10], description="Cut-offs, in ranks: every measure is given at each of them.")
    unit: Unit = Field(
        default="document",
        description=(
            "What counts as one result. document: a document's chunks count once, at their best rank; chunk: "
            "every chunk counts."
        ),
    )
    order: Literal["given", "trec"] = Field(
        default="given",
        description=(
            "Order of the results. given: the ranks that the system gave; trec: by score, then by id, both "
            "descending, as trec_eval sorts."
        ),
    )
    require_snippet: RequireSnippet = False
    measures: list[Cut] = Field(
        default=list(CUTS), description="Measures given at each cut-off. `mrr` and `retrieval_score` are always given."
    )
    score_k: int = Field(default=5, ge=1, description="Cut-off of the measures inside `retrieval_score`, in ranks.")
    weights: Weights[Part] = Field(
        default={"recall": 0.4, "precision": 0.2, "mrr": 0.2, "ndcg": 0.2},
        description="Weights of the measures inside `retrieval_score`. They are divided by their sum.",
    )
    prefix: Prefix = ""

    @field_validator("k")
    @classmethod
    def _cuts(cls, value: list[int]) -> list[int]:
        if not value or min(value) < 1 or len(set(value)) < len(value):
            raise ValueError(f"cut-offs are different whole numbers from 1 on, found {value}")
        return value

    def scores(self) -> tuple[ScoreSpec, ...]:
        cut = [ScoreSpec(f"{self.prefix}{m}@{k}", binary=m in ("hit", "recall_all")) for m in self.measures for k in self.k]
        return (*cut, ScoreSpec(f"{self.prefix}mrr"), ScoreSpec(f"{self.prefix}retrieval_score"))

    def sample_skip_reason(self, sample: Sample) -> str | None:
        has_gold = names_gold(sample)
        if has_gold or gold_groups(sample):
            return None
        return "no_relevance_labels" if has_gold is None else "no_relevant_items"

    def skip_reason(self, case: Case) -> str | None:
        if why := super().skip_reason(case):
            return why
        unscored = self.order == "trec" and any(chunk.score is None for chunk in case.contexts)
        return "no_retrieval_scores" if unscored else None

    def compute(self, cases: Sequence[Case]) -> Sequence[Sequence[Score]]:
        return self.compute_columns([self.prepare(case) for case in cases]).rows()

    def prepare(self, case: Case) -> RankedList:
        return ranked_list_of(case, self._matched(case), self.order, self.unit, self.require_snippet)

    def compute_columns(self, prepared: Sequence[RankedList]) -> ScoreColumns:
        measured = self._measured(prepared)
        by_score = [
            _all_met(prepared, k) if measure == "recall_all" else measured[f"{measure}@{k}"]
            for measure in self.measures
            for k in self.k
        ]
        parts = {part: measured[part if part == "mrr" else f"{part}@{self.score_k}"] for part in self.weights}
        weighted = sum((weight * parts[part] for part, weight in self.weights.items()), np.zeros(len(prepared)))
        by_score += [measured["mrr"], weighted / sum(self.weights.values())]
        reasons = self._skips(prepared)
        values = [
            value if reason is None else None
            for value, reason in zip(np.column_stack(by_score).ravel().tolist(), reasons, strict=True)
        ]
        statuses: list[Status] = ["ok" if reason is None else "skipped" for reason in reasons]
        return ScoreColumns(self.score_names, values, statuses, reasons, self._details(prepared, parts))

    def _measured(self, lists: Sequence[RankedList]) -> dict[str, Floats]:
        """Every measure at every cut-off, one value per case."""
        cuts = {*self.k, self.score_k}
        names = ["mrr", *(f"{measure}@{k}" for measure in CUTS if measure != "recall_all" for k in cuts)]
        measured = {name: np.zeros(len(lists)) for name in names}
        for simple in (True, False):  # plain ids go through arrays at once; anchors and groups were matched one by one
            rows = [i for i, ranked in enumerate(lists) if ranked.plain is simple]
            if rows:
                for name, column in rank_values(_ranking([lists[i] for i in rows], simple), cuts).items():
                    measured[name][rows] = column
        return measured

    def _skips(self, lists: Sequence[RankedList]) -> list[str | None]:
        """Why each score of each case is skipped: what its labels do not define."""

        def reasons(has_gold: bool, has_groups: bool) -> list[str | None]:
            no_groups = None if has_groups else "no_required_support_groups"
            no_gold = None if has_gold else "no_gold_items"
            of = {measure: None if measure in OF_GROUPS else no_gold for measure in CUTS} | {"recall_all": no_groups}
            return [*(of[measure] for measure in self.measures for _ in self.k), no_gold, no_gold]

        by_labels = {(gold, groups): reasons(gold, groups) for gold in (True, False) for groups in (True, False)}
        return [reason for ranked in lists for reason in by_labels[bool(ranked.gold), ranked.all_met is not None]]

    def _details(self, lists: Sequence[RankedList], parts: Mapping[Part, Floats]) -> list[dict[str, Any] | None]:
        """Details of the last two scores of each case with gold items: `mrr`, and `retrieval_score` with its parts."""
        names = [part if part == "mrr" else f"{part}@{self.score_k}" for part in parts]
        none: list[dict[str, Any] | None] = [None] * (len(self.score_names) - 2)
        details: list[dict[str, Any] | None] = []
        for ranked, *of_case in zip(lists, *(column.tolist() for column in parts.values()), strict=True):
            last = (ranked.details(), dict(zip(names, of_case, strict=True))) if ranked.gold else (None, None)
            details += [*none, *last]
        return details

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        if score == f"{self.prefix}mrr":
            rank = details.get("first_match_rank")
            return f"1 / {rank}, the rank of the first match" if rank else "no match"
        if score != f"{self.prefix}retrieval_score":
            return None
        names = {part: part if part == "mrr" else f"{part}@{self.score_k}" for part in self.weights}
        return explain_weighted_mean(
            (weight, f"{details[names[part]]:.4f}", names[part]) for part, weight in self.weights.items()
        )

    def notes(self, case: Case) -> Sequence[str]:
        gold = self._matched(case)
        ranks = first_ranks(case, gold, self.order, self.unit, self.require_snippet)
        matched = sorted((rank, name) for name, rank in ranks.items() if rank is not None)
        missing = [name for name, rank in ranks.items() if rank is None]
        lines = [f"found: {', '.join(f'{name} at rank {rank}' for rank, name in matched) or 'no gold item'}"]
        if missing:
            lines.append(f"missing: {len(missing)} of {len(ranks)} gold items: {', '.join(missing)}")
        return lines

    def _matched(self, case: Case) -> Gold:
        """The gold items as they name what this output retrieved; empty where there are only groups."""
        chunks = case.contexts
        gold = gold_of(case.sample, self.unit, chunks=chunks, require_snippet=self.require_snippet)
        return gold or gold_of_groups(case.sample, self.unit, chunks)


def _ranking(lists: list[RankedList], simple: bool) -> Ranking:
    if not simple:
        return from_rows([listing.rows for listing in lists], [listing.ideal for listing in lists])
    return from_ids([listing.ids for listing in lists], [listing.gold.gains for listing in lists])


def _all_met(lists: Sequence[RankedList], k: int) -> Floats:
    """1 for each case in which every required support group has a match up to rank k; 0 where there is no group, too."""
    ranks = [NEVER if ranked.all_met is None else ranked.all_met for ranked in lists]
    return (np.array(ranks, dtype=np.int64) <= k).astype(np.float64)
