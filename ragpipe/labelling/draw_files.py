"""Writing a draw into its folder: the draw, its table, the page and the sheets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from ragpipe.labelling.label_files import (
    DRAW,
    DRAWN,
    LABELS,
    STRATA,
    Draw,
    read_labels,
    write_draw,
    write_rows,
)
from ragpipe.labelling.label_import import merged_labels
from ragpipe.labelling.label_page import label_page, page_digest
from ragpipe.labelling.label_settings import LabelSettings
from ragpipe.labelling.label_sheets import sheet_rows, write_sheets
from ragpipe.labelling.shown_cases import ShownCase
from ragpipe.store.files.atomic import write_unless_same
from ragpipe.store.run.run_folder import make_folder

PAGE = "label.html"


def write_draw_files(
    folder: Path,
    draw: Draw,
    drawn: pa.Table,
    strata: pa.Table | None,
    items: Mapping[str, ShownCase],
    settings: LabelSettings,
    *,
    with_reference: bool,
) -> list[Path]:
    """Write the files of a draw and return their paths, the page first. Labels that it has get the probabilities of its table.

    Args:
        folder: the draw's folder; it is made.
        draw: the draw; the digest of its page is added to `pages`.
        drawn: its table.
        strata: the stratum of every case that was drawn from; None for a random draw.
        items: what people see, by item.
        settings: who is asked.
        with_reference: whether the reference answer is shown.

    Raises OutputError.
    """
    make_folder(folder.parent)
    make_folder(folder)
    digest = page_digest(draw, items, with_reference=with_reference)
    pages = [page for page in draw.pages if page != digest]
    draw = draw.model_copy(update={"pages": [*pages, digest]})
    rows = drawn.to_pylist()
    html = label_page(
        draw,
        items,
        {row["item"]: row["annotators"] for row in rows},
        annotators=settings.annotators,
        again=settings.again,
        with_reference=with_reference,
    )
    write_rows(folder / DRAWN, drawn)
    write_unless_same(folder / PAGE, html)
    sheets = write_sheets(folder, sheet_rows(draw, items, with_reference=with_reference))
    written = [folder / PAGE, *sheets, folder / DRAWN, folder / DRAW]
    if strata is not None:
        write_rows(folder / STRATA, strata)
        written.append(folder / STRATA)
    if (folder / LABELS).is_file():
        write_rows(folder / LABELS, merged_labels(read_labels(folder), [], drawn))
        written.append(folder / LABELS)
    write_draw(folder, draw)  # last: a folder with it is complete
    return written
