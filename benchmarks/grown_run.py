"""A run folder made long: the cases of a finished run many times over, each with texts of its own."""

import json
import shutil
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

GROUP = 1000  # rows in a row group, as a run writes them
_WORDS = [f"{a}{b}{c}" for a in ("ka", "lo", "mi", "tre") for b in ("na", "ro", "sti", "ve") for c in ("", "l", "nd", "s")]


def grow(source: Path, target: Path, times: int, *, seed: int = 0) -> Path:
    """Copy the run `source` to `target` with `times` as many samples and cases.

    Copy n has the sample ids `<id>-<n>`. Answers get words of their own; contexts have about 700 characters of random words,
    the same for equal ids of a copy whatever `seed` is, so that two grown runs share them.
    """
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("seal.json"))  # its tables are other ones
    samples = pq.read_table(source / "samples.parquet")
    outputs = pq.read_table(source / "outputs.parquet")
    _write(target / "samples.parquet", [_renamed(samples, "id", n) for n in range(times)])
    _write(target / "outputs.parquet", [_outputs(outputs, n, samples.num_rows) for n in range(times)])
    for path in sorted(source.glob("iteration-*/records.parquet")):
        records, answers = pq.read_table(path), Random(seed)
        copies = []
        for n in range(times):
            texts = [f"{text or ''} {_text(answers, 20)}" for text in records["answer"].to_pylist()]
            copy = _renamed(records, "sample_id", n)
            copies.append(copy.set_column(copy.schema.get_field_index("answer"), "answer", pa.array(texts)))
        _write(target / path.relative_to(source), copies)
        for name in ("scores.parquet", "judge_inputs.parquet"):
            table = pq.read_table(path.with_name(name))
            _write(target / path.relative_to(source).with_name(name), [_renamed(table, "sample_id", n) for n in range(times)])
    return target


def _renamed(table: pa.Table, column: str, n: int) -> pa.Table:
    names = pc.binary_join_element_wise(table[column], str(n), "-")
    return table.set_column(table.schema.get_field_index(column), column, names)


def _outputs(outputs: pa.Table, n: int, n_samples: int) -> pa.Table:
    copy = _renamed(outputs, "sample_id", n)
    rows = pc.add(copy["sample_row"], n * n_samples)
    chunks = [_chunks(text, n) for text in copy["chunks"].to_pylist()]
    copy = copy.set_column(copy.schema.get_field_index("sample_row"), "sample_row", rows)
    return copy.set_column(copy.schema.get_field_index("chunks"), "chunks", pa.array(chunks))


def _chunks(text: str | None, n: int) -> str:
    chunks = json.loads(text) if text else []
    for chunk in chunks:
        chunk["text"] = _text(Random(f"{chunk['id']}-{n}"), 110)
    return json.dumps(chunks)


def _text(random: Random, words: int) -> str:
    return " ".join(random.choices(_WORDS, k=words))


def _write(path: Path, tables: list[pa.Table]) -> None:
    table = pa.concat_tables([one.cast(tables[0].schema) for one in tables])
    pq.write_table(table, path, row_group_size=GROUP)
