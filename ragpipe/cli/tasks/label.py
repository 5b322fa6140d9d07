"""`task=label`: cases of a finished run for people to label, blind to what the judge said, and their labels back. No call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from ragpipe.calibration.label_files import (
    CANNOT_DRAW,
    DRAW,
    LABELS,
    LABELS_FOLDER,
    Draw,
    LabelSettings,
    draw_folders,
    draw_id_of,
    drawn_of,
    drawn_rows,
    read_draw,
    read_drawn,
    read_labels,
    read_population,
    read_shown_cases,
    stratum_sizes,
    turned,
    turned_items,
    write_rows,
)
from ragpipe.calibration.label_import import (
    CANNOT_READ,
    GivenLabel,
    LabelEvent,
    LabelKey,
    checked,
    draw_of_files,
    labels_of,
    merged_labels,
    read_labelled_file,
    unlabelled_cases,
)
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import CaseKey
from ragpipe.core.settings import ConfigOrigins
from ragpipe.report.console import Console
from ragpipe.report.label_page import AskedQuestion, asked_question, write_draw_files
from ragpipe.runs.finished_run import FinishedRunKeys, FinishedRunTask, open_finished_run
from ragpipe.runs.manifest import scored_iterations
from ragpipe.runs.write_reports import seal_pages
from ragpipe.store.folder_lock import FolderLock

SECTION = "label"
_TITLE = "task=label is wrong; nothing was written"


class Keys(FinishedRunKeys):
    label: LabelSettings = Field(description="Which cases people label, or which labelled files are read.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[LabelSettings]:
    """The run, and what to draw or to import. Raises ConfigError and DataError."""
    return open_finished_run(plain, origins, LabelSettings, task="label", title=_TITLE, section=SECTION)


def run(task: FinishedRunTask[LabelSettings], console: Console) -> int:
    """Draw, or import labelled files. Returns 0. Raises ConfigError, DataError, OutputError."""
    folder = task.finished.folder
    with FolderLock(folder.root) as lock:
        for notice in lock.notices:
            console.warn(notice)
        written = _import(task, console) if task.settings.files else _draw(task, console)
        seal_pages(folder, written, task.finished.config.report)
    return 0


def _draw(task: FinishedRunTask[LabelSettings], console: Console) -> list[Path]:
    """Draw cases and write the draw's folder; a draw that is there already is kept, or grows."""
    settings, finished = task.settings, task.finished
    asked = asked_question(list(finished.config.metrics.values()), settings.metric, settings.question, settings.grades)
    score, run_folder = asked.spec.name, finished.folder
    what = {"question": asked.question, "grades": [grade.model_dump() for grade in asked.grades]}
    folder = run_folder.root / LABELS_FOLDER / draw_id_of(finished.run_id, score, what, settings)
    before = read_draw(folder) if (folder / DRAW).is_file() else None
    numbers = scored_iterations(run_folder, or_error=CANNOT_DRAW)
    population = read_population([run_folder.iteration(number).records for number in numbers], score)
    have = int(before.settings["n"]) if before else 0
    size = min(max(have, settings.n), len(population.keys))
    drawn = drawn_of(settings, population, size, before)
    keys = [population.keys[place] for place in drawn.places]
    shown = read_shown_cases(run_folder, keys)
    earlier = read_drawn(folder)["item"].to_pylist() if before else []
    table = drawn_rows(drawn, population, shown, settings, draw_id=folder.name, earlier=earlier)
    draw = Draw(
        draw_id=folder.name,
        run_id=finished.run_id,
        metric=asked.metric.name,
        score=score,
        question=asked.question,
        grades=asked.grades,
        low=asked.spec.low,
        high=asked.spec.high,
        seed=settings.seed,
        cases=len(population.keys),
        strata=stratum_sizes(drawn),
        settings=settings.model_dump(exclude={"files"}) | {"n": size},
    )
    by_item = {row["item"]: shown[row["sample_id"], row["method"], row["repeat"]] for row in table.to_pylist()}
    by_item |= {item: turned(by_item[item]) for item in turned_items(draw.draw_id, table, run_folder.outputs)}
    written = write_draw_files(folder, draw, table, by_item, settings, with_reference="reference" in asked.metric.required)
    _say_draw(console, task, draw, asked, drawn.random, added=len(drawn.places) - len(earlier) if before else None)
    return written


def _say_draw(
    console: Console, task: FinishedRunTask[LabelSettings], draw: Draw, asked: AskedQuestion, random: int, *, added: int | None
) -> None:
    total = sum(stratum.drawn for stratum in draw.strata)
    grown = "" if not added else f", {added} of them new"
    console.say(f"draw {draw.draw_id}: {total} of {draw.cases:,} cases with a value of {draw.score}{grown} (seed {draw.seed})")
    if task.settings.draw != "random":
        parts = ", ".join(f"{stratum.name} {stratum.drawn} of {stratum.cases:,}" for stratum in draw.strata)
        console.say(f"  {random} at random, then by method: {parts}")
    if added == 0 and task.settings.n < total:
        console.say(f"  the draw had {total} cases already, and keeps them: label.seed=... draws others")
    console.say(f"asked: {asked.question} ({', '.join(grade.name for grade in asked.grades)}, cannot tell)")
    folder = task.finished.folder.root / LABELS_FOLDER / draw.draw_id
    console.say(f"label on {folder / 'label.html'} (any browser, no server), or in sheet.csv beside it")
    console.say(f"then: python -m ragpipe task=label run={task.finished.folder.root} 'label.import=[FILE]'")


def _import(task: FinishedRunTask[LabelSettings], console: Console) -> list[Path]:
    """Read labelled files into their draws; nothing is written where one of them has a fault."""
    run_folder = task.finished.folder.root
    draws = {folder: (read_draw(folder), set(read_drawn(folder)["item"].to_pylist())) for folder in draw_folders(run_folder)}
    files: dict[Path, list[dict[LabelKey, GivenLabel | None]]] = {}
    for name in map(Path, task.settings.files):
        problems: list[Problem] = []
        events = read_labelled_file(name, problems)
        checked(problems)
        folder = draw_of_files(draws, events) if events else None
        if folder is None:
            raise _without_draw(name, events, [draw for draw, _ in draws.values()])
        turns = turned_items(folder.name, read_drawn(folder), task.finished.folder.outputs)
        labels = labels_of(*draws[folder], events, turns)
        files.setdefault(folder, []).append(labels)
        console.say(f"{name}: {_counts(labels)}")
    written = []
    for folder, labels_by_file in files.items():
        earlier = read_labels(folder) if (folder / LABELS).is_file() else None
        drawn, draw = read_drawn(folder), read_draw(folder)
        table = merged_labels(earlier, labels_by_file, drawn)
        write_rows(folder / LABELS, table)
        written.append(folder / LABELS)
        labelled = len({CaseKey.of(row) for row in table.to_pylist()})
        people = len(set(table["annotator"].to_pylist()))
        total = sum(stratum.drawn for stratum in draw.strata)
        console.say(
            f"draw {folder.name}: {labelled} of {total} cases labelled by {people} {'person' if people == 1 else 'people'}"
        )
        for annotator in sorted({key.annotator for labels in labels_by_file for key, label in labels.items() if label}):
            missing, asked = unlabelled_cases(drawn, table, annotator)
            if missing:
                console.warn(f"{missing:,} of {asked:,} cases have no label by {annotator}")
        console.say(str(folder / LABELS))
    return written


def _without_draw(path: Path, events: Sequence[LabelEvent], draws: Sequence[Draw]) -> DataError:
    if not events:
        return DataError(
            CANNOT_READ, [Problem(str(path), "label.import", "no label", "labelled cases", "fill in the column label")]
        )
    first = events[0]
    named = f"the draw {first.draw}" if first.draw else f"the item {first.item}"
    known = ", ".join(draw.draw_id for draw in draws) or "none: draw first (task=label label.metric=...)"
    fix = "import it into the run that it was drawn from"
    return DataError(CANNOT_READ, [Problem(first.where, "draw", named, f"a draw of this run: {known}", fix)])


def _counts(labels: Mapping[LabelKey, GivenLabel | None]) -> str:
    given = {key: label for key, label in labels.items() if label is not None}
    people = sorted({key.annotator for key in given})
    unsure = sum(label.value is None for label in given.values())
    details = f" ({unsure} cannot tell)" if unsure else ""
    return f"{len(given)} {'label' if len(given) == 1 else 'labels'} by {', '.join(people) or 'nobody'}{details}"
