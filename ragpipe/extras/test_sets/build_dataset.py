"""`task=build_dataset`: a frozen test set from a log: duplicates, draw, personal data, card. No call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ragpipe.core.errors import ConfigError, DataError, Problem
from ragpipe.core.sample import Sample
from ragpipe.core.settings import ConfigOrigins, NoOrigins, Settings, validated
from ragpipe.data.dataset import Dataset, open_dataset
from ragpipe.data.faults import Faults
from ragpipe.data.settings import DatasetSettings
from ragpipe.extras.test_sets.frozen_set import CASES, refuse_existing, write_frozen_set
from ragpipe.extras.test_sets.log_cases import LogCases, without_meta, without_personal_data
from ragpipe.extras.test_sets.log_scan import POOL, LogScan, SkippedFaults, drawn_samples, question_text, samples_of, scan_log
from ragpipe.report.console import Console
from ragpipe.store.places import cache_folder

SECTION = "build"
_TITLE = "no test set can be built"


class BuildSettings(Settings):
    """How many cases are drawn, how, and what is done with them before they are frozen."""

    dir: str = Field(min_length=1, description="Folder of the frozen set. It must be new or empty.")
    n: Annotated[int, Field(ge=1, le=50_000)] | None = Field(
        default=500, description="Number of cases, 1 to 50,000. null: every distinct question."
    )
    personal_data: Literal["replace", "drop", "keep"] = Field(
        default="replace",
        description="replace: by <EMAIL> and the like; drop: cases with any are left out; keep: nothing is searched.",
    )
    drop_meta: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="Names under `meta` that are left out: [user, session.address]. Default: none."
    )
    answers: Literal["keep", "drop"] = Field(
        default="keep", description="keep: with the recorded outputs; drop: questions only, for a live system."
    )
    faults: Literal["refuse", "skip"] = Field(
        default="refuse", description="Records that cannot be used: refuse the data set, or leave them out and count them."
    )


@dataclass(frozen=True)
class BuildTask:
    """The data set to draw from, and how; `seed` is the run's, `cache` gets the copies of files of object stores."""

    dataset: DatasetSettings
    build: BuildSettings
    seed: int
    cache: Path


class Keys(Settings):
    build: BuildSettings = Field(description="How a test set is drawn from the data set, and where it is written.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> BuildTask:
    """Check the sections `dataset` and `build`. Raises ConfigError."""
    origins = origins or NoOrigins()
    problems: list[Problem] = []
    dataset = None
    if plain.get("dataset"):
        dataset = validated(DatasetSettings, plain["dataset"], "dataset", origins, problems)
    else:
        fix = "dataset=jsonl dataset.path=LOG, or a mapping of its shape: dataset=langfuse and others"
        problems.append(Problem(origins.location("dataset"), "dataset", "no data set", "the log to draw from", fix))
    build = validated(BuildSettings, plain.get(SECTION, {}), SECTION, origins, problems)
    for name in ("dataset.sample", "dataset.limit"):
        if (value := getattr(dataset, name.removeprefix("dataset."), None)) is not None:
            expected = "null: a test set is drawn from all"
            problems.append(Problem(origins.location(name), name, str(value), expected, "build.n=..."))
    if problems or dataset is None or build is None:
        raise ConfigError(_TITLE, problems)
    seed = plain.get("seed")
    return BuildTask(dataset, build, seed if isinstance(seed, int) else 0, cache_folder(plain))


def run(task: BuildTask, console: Console) -> int:
    """Build the set, print what each step kept, and how to use it. Returns 0. Raises ConfigError, DataError, OutputError."""
    folder = Path(task.build.dir)
    refuse_existing(folder, "build.dir")
    dataset = open_dataset(task.dataset, Path(), task.cache)
    built = build_test_set(dataset, task.build, seed=task.seed, chunk_text=task.dataset.chunk_text)
    cells = [[_cell(row[name]) for name in ("step", "kept", "dropped", "note")] for row in built.card["steps"]]
    console.table(["step", "kept", "dropped", ""], cells, title="from the log to the test set", left=(0, 3))
    if replaced := built.card["personal_data"]:
        console.say("personal data: " + ", ".join(f"{number:,} {kind}" for kind, number in replaced.items()))
    elif task.build.personal_data != "keep":
        console.say("personal data: none was found by its form; names and addresses of houses are not searched")
    for note in built.notes:
        console.warn(note)
    console.say(f"written: {folder / CASES}, card.json, card.md")
    console.say(f"sha256 {built.sha256}")
    console.say(f"next: python -m ragpipe task=plan dataset=jsonl dataset.path={folder / CASES} dataset.sha256={built.sha256}")
    return 0


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class BuiltSet:
    """A frozen set that was written: its hash, its card, and what went otherwise than wanted, in sentences."""

    sha256: str
    card: dict[str, Any]
    notes: list[str]


def build_test_set(dataset: Dataset, settings: BuildSettings, *, seed: int, chunk_text: list[str] | None) -> BuiltSet:
    """Draw a test set from a log, `dataset`, with its mapping and filter, and freeze it. The same log, settings and `seed` of
    the draw give the same hash, whatever the order of the lines. `chunk_text` is `dataset.chunk_text`.

    Raises DataError for records that cannot be used (unless they are skipped), and where nothing is left; ConfigError where
    the folder is not empty; OutputError.
    """
    title = f"data set {dataset.name!r}: no test set can be built from it"
    skipping = "; build.faults=skip leaves such records out and counts them"
    faults = SkippedFaults(title) if settings.faults == "skip" else Faults(title, lambda: skipping)
    scan = scan_log(dataset, faults)
    if not len(scan):
        actual = f"{scan.records:,} records, of which none passes the filter" if scan.filtered else "no record"
        raise DataError(faults.title, [Problem(dataset.name, "records", actual, "at least one case")])
    samples = samples_of(scan)
    candidates, distinct = drawn_samples(samples, settings.n, seed)
    drawn = LogCases(dataset, scan, samples, candidates.tolist(), faults)
    filler = _Filler(drawn, settings, {"kind": "log", "source": dataset.name, "seed": seed}, chunk_text)
    cases = list(islice(filler.usable(candidates.tolist()), settings.n))
    faults.raise_all()
    counts = filler.counts
    _refuse_unknown_meta(settings, counts, cases)
    account = _Account(settings, scan, len(samples.starts), len(candidates), distinct, len(cases), counts, faults)
    what = "every distinct question" if settings.n is None else f"{settings.n:,} questions, drawn at random"
    notes = account.notes()
    card = {
        "made": f"Built by ragpipe task=build_dataset from the data set {dataset.name!r}: {what}.",
        "seed": seed,
        "steps": account.steps(),
        "personal_data": dict(sorted(counts.replaced.items())),
        "notes": notes,
        "settings": settings.model_dump(exclude={"dir"}, exclude_defaults=True),
        "sources": dataset.sources(),
    }
    return BuiltSet(write_frozen_set(Path(settings.dir), cases, card), card, notes)


class _Filler:
    """Makes cases of candidates, and counts what became of them."""

    def __init__(self, drawn: LogCases, settings: BuildSettings, origin: Mapping[str, Any], chunk_text: list[str] | None):
        self._drawn, self._settings, self._origin, self._chunk_text = drawn, settings, origin, chunk_text
        self.counts = FillCounts()
        self._asked: set[str] = set()

    def usable(self, candidates: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The candidates that may be taken, in order, as they are written."""
        settings = self._settings
        for candidate in candidates:
            if (case := self._drawn.case_of(candidate, self._chunk_text)) is None:
                continue
            if settings.answers == "drop":
                case = {name: value for name, value in case.items() if name in Sample.model_fields}  # for a live system
            case, dropped = without_meta(case, settings.drop_meta)
            replaced: Counter[str] = Counter()
            if settings.personal_data != "keep":
                case, replaced = without_personal_data(case)
                if replaced and settings.personal_data == "drop":
                    self.counts.with_personal_data += 1
                    continue
            if (text := question_text(case)) in self._asked:
                self.counts.same += 1
                continue
            self._asked.add(text)
            self.counts.with_personal_data += bool(replaced)
            self.counts.replaced.update(replaced)
            self.counts.meta_dropped.update(dropped)
            meta = case.get("meta") or {}
            yield {**case, "meta": meta if "origin" in meta else {**meta, "origin": dict(self._origin)}}


def _refuse_unknown_meta(settings: BuildSettings, counts: FillCounts, cases: list[dict[str, Any]]) -> None:
    """Raises DataError for a name to drop that no case has: it is misspelt, and the data would stay."""
    known = sorted({name for case in cases for name in case["meta"]} - {"origin"})
    found, expected = "no drawn case has it under `meta`", f"a name under `meta`: {', '.join(known) or 'none'}"
    unknown, fix = [name for name in settings.drop_meta if not counts.meta_dropped[name]], "correct it, or leave it out"
    problems = [Problem("build.drop_meta", name, found, expected, fix) for name in unknown]
    if problems and cases:
        raise DataError("what is to be dropped is not there; nothing was written", problems)


_EXACT = "same question and history: Unicode NFKC, case, blanks, signs at the ends"


@dataclass
class FillCounts:
    """What became of the candidates that were looked at; `replaced` are places by kind of personal data."""

    same: int = 0
    with_personal_data: int = 0
    replaced: Counter[str] = field(default_factory=Counter)
    meta_dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class _Account:
    """All that the making of a set counted, as its card says it: numbers of samples of the log, of candidates, of distinct questions and of cases."""

    settings: BuildSettings
    scan: LogScan
    samples: int
    candidates: int
    distinct: int
    taken: int
    counts: FillCounts
    faults: Faults

    def steps(self) -> list[dict[str, Any]]:
        """What each step kept and dropped, in their order."""
        scan, counts = self.scan, self.counts
        rows: list[tuple[str, int | None, int | None, str]] = [("records read", scan.records, 0, "")]
        if isinstance(self.faults, SkippedFaults) and self.faults.counts:
            fields = ", ".join(f"{key}: {number}" for key, number in self.faults.counts.most_common())
            rows.append(("faults left out", None, self.faults.counts.total(), f"by field: {fields}"))
        times = f"candidates, {POOL} times the wanted cases or all" if self.settings.n else "all are candidates"
        rows += [
            ("filter", len(scan), scan.filtered, "cases that dataset.filter lets through"),
            ("samples", self.samples, len(scan) - self.samples, "cases of one id and question are one sample"),
            ("duplicates", self.distinct, self.samples - self.distinct, _EXACT),
            ("draw", self.candidates, None, times),
        ]
        if self.settings.personal_data == "drop":
            rows.append(("personal data", None, counts.with_personal_data, "candidates with any were left out"))
        elif self.settings.personal_data == "replace":
            what = f"replaced in {counts.with_personal_data:,} cases; candidates that differ in nothing else were left out"
            rows.append(("personal data", None, counts.same, what))
        rows.append(("frozen", self.taken, None, "cases"))
        return [dict(zip(("step", "kept", "dropped", "note"), row, strict=True)) for row in rows]

    def notes(self) -> list[str]:
        """What went otherwise than wanted, a sentence each."""
        notes = []
        if self.settings.n is not None and self.taken < self.settings.n:
            have = f"{self.distinct:,} distinct questions to draw from, candidates: {self.candidates:,}"
            notes.append(f"{self.taken:,} of {self.settings.n:,} cases: {have}")
        if isinstance(self.faults, SkippedFaults):
            for key, number in self.faults.counts.most_common():
                notes.append(f"left out because of {key}: {number:,}, the first at {self.faults.first[key]}")
        return notes
