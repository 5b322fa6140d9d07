"""Did the folder selection leave out every gold item?"""

from __future__ import annotations

from collections.abc import Sequence

from ragpipe.core.sample import Case, Sample
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.metrics.base import Computed


class ScopeMissMetric(Computed):
    """1 when no gold item is in a selected folder, else 0. The mean is the scope miss rate, lower is better.

    Only for outputs with `folder_mode` on or on_with_fallback and recorded `selected_folders`. The place of a gold
    item is its anchor's `rel_path`; without anchors, the relevant document ids are used where they are paths (contain
    a `/`). An empty selection with on_with_fallback falls back to all folders, which is no miss. `/`, `.` and the
    empty text select all.
    """

    gives = ScoreSpec("", higher_is_better=False, binary=True)
    needs = frozenset({"labels"})
    measures_retrieval = True
    reads_cells = True

    def sample_skip_reason(self, sample: Sample) -> str | None:
        return super().sample_skip_reason(sample) or (None if _paths(sample) else "no_gold_paths")

    def skip_reason(self, case: Case) -> str | None:
        if case.output.folder_mode not in ("on", "on_with_fallback"):
            return "no_folder_mode"
        if case.output.selected_folders is None:
            return "no_folder_selection_recorded"
        return super().skip_reason(case)

    def compute(self, cases: Sequence[Case]) -> Sequence[Score]:
        return [self._score(case) for case in cases]

    def _score(self, case: Case) -> Score:
        folders, paths = case.output.selected_folders or [], _paths(case.sample)
        details = {"selected_folders": folders, "gold_paths": paths}
        if not folders and case.output.folder_mode == "on_with_fallback":
            return Score(0.0, reason="fell back to all folders", details=details)
        kept = [path for path in paths if any(_inside(path, folder) for folder in folders)]
        return Score(float(not kept), details={**details, "kept": kept})


def _paths(sample: Sample) -> list[str]:
    anchored = list(dict.fromkeys(anchor.rel_path for anchor in sample.anchors or ()))
    docs = sample.relevant_docs or []
    return anchored or (docs if any("/" in doc for doc in docs) else [])


def _inside(path: str, folder: str) -> bool:
    parts = [part for part in folder.replace("\\", "/").split("/") if part not in ("", ".")]
    return [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")][: len(parts)] == parts
