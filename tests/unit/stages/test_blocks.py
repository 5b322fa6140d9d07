"""How cases are cut into blocks: by their number, and by the bytes of their own text."""

import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.core.errors import DataError
from ragpipe.schema.sample import Chunk, Output, Sample
from ragpipe.stages import load_dataset
from ragpipe.stages.case_batches import text_bytes
from ragpipe.stages.case_reader import CaseReader

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test


def record(number: int, answer: str, *, question: str = "q", method: str = "default") -> SimpleNamespace:
    output = Output(sample_id=f"s{number}", method=method, answer=answer, chunks=[Chunk(id="c", rank=1, text="x")])
    return SimpleNamespace(sample=Sample(id=f"s{number}", question=question), output=output, where="")


def frozen(folder: Path, records: Sequence[SimpleNamespace]) -> tuple[Path, Path]:
    samples, outputs = folder / "samples.parquet", folder / "outputs.parquet"
    load_dataset.load_dataset(records, samples=samples, outputs=outputs)
    return samples, outputs


def groups(path: Path) -> list[int]:
    found = pq.ParquetFile(path).metadata
    return [found.row_group(i).num_rows for i in range(found.num_row_groups)]


def test_a_block_is_closed_by_the_text_of_its_cases(tmp_path: Path) -> None:
    """16 MiB, reached by the fourth case of 5 MiB; a case that is larger than a block stands alone."""
    mib = "x" * (1 << 20)
    records = [record(i, mib * 5) for i in range(6)] + [record(6, "small"), record(7, mib * 20), record(8, "small")]
    samples, outputs = frozen(tmp_path, records)
    assert groups(outputs) == [4, 4, 1]
    assert groups(samples) == [9]
    assert load_dataset.block_limits() == {"cases": 1000, "text_bytes": 16_777_216}


def test_the_text_of_the_sample_counts_with_each_of_its_outputs(tmp_path: Path) -> None:
    question = "x" * (6 << 20)
    samples, outputs = frozen(tmp_path, [record(0, "a", question=question, method=f"m{i}") for i in range(7)])
    assert groups(outputs) == [3, 3, 1]
    assert groups(samples) == [1]


def test_letters_count_by_their_bytes(tmp_path: Path) -> None:
    """A text of three bytes a letter fills a block in a third of the letters."""
    rows = {"a": ["x" * 9, ""], "b": ["\u20ac" * 3, "z"], "c": [None, "w"], "d": [["y", "\u20ac"], None], "e": [7, 8]}
    table = pa.table(rows)
    assert text_bytes(table).tolist() == [9 + 9 + 4, 2]
    assert text_bytes(table.slice(1)).tolist() == [2]
    empty = pa.table({"d": pa.array([[], ["ab"], []], pa.list_(pa.string()))})
    assert text_bytes(empty).tolist() == [0, 2, 0]


def test_small_cases_are_a_thousand(tmp_path: Path) -> None:
    _, outputs = frozen(tmp_path, [record(i, "a") for i in range(2500)])
    assert groups(outputs) == [1000, 1000, 500]


def test_every_case_finds_its_sample_in_whichever_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_dataset, "BLOCK", 7)
    order = [(i, method) for i in range(40) for method in ("a", "b")]
    random.Random(4).shuffle(order)
    samples, outputs = frozen(tmp_path, [record(i, f"{i} by {m}", question=f"is it {i}?", method=m) for i, m in order])
    reader = CaseReader(samples, outputs, iteration=3)
    monkeypatch.setattr("ragpipe.stages.case_reader._KEPT_BYTES", 1)  # two groups are held at most
    found = [(case.sample.question, case.output.answer) for case in reader]
    assert found == [(f"is it {i}?", f"{i} by {m}") for i, m in order]
    keys = [key for block in range(reader.blocks) for key in reader.keys(block)]
    assert keys == [case.key for case in reader]


@pytest.mark.parametrize("victim", ["samples", "outputs"])
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "other"])
def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, victim: str, damage: str) -> None:
    paths = dict(zip(("samples", "outputs"), frozen(tmp_path, [record(i, "a" * 50) for i in range(30)]), strict=True))
    path = paths[victim]
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "other":
        path.write_bytes(b"no table")
    else:
        path.write_bytes(
            whole[:-30] if damage == "cut" else whole[:4] + bytes(b ^ 0x5A for b in whole[4:400]) + whole[400:]
        )
    with pytest.raises(DataError) as found:
        list(CaseReader(**paths))
    assert found.value.problems[0].where == str(path)


@pytest.mark.parametrize("order", ["by method", "by question"])
def test_a_batch_may_bring_no_new_sample(tmp_path: Path, order: str) -> None:
    """A thousand cases are a batch: the second one holds samples of the first one alone."""
    if order == "by method":
        cases = [(number, method) for method in "ab" for number in range(1000)]
    else:
        cases = [(number, method) for number in range(334) for method in "abc"]
    answers = [f"{number} by {method}" for number, method in cases]
    records = [record(number, answer, method=method) for (number, method), answer in zip(cases, answers, strict=True)]
    samples, outputs = frozen(tmp_path, records)
    found = [(case.sample.id, case.output.answer) for case in CaseReader(samples, outputs)]
    assert found == [(f"s{number}", answer) for (number, _), answer in zip(cases, answers, strict=True)]
    assert groups(samples) == [1000 if order == "by method" else 334]
