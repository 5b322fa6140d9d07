"""The demonstration data as a user opens it: through conf/dataset/demo.yaml and the data set reader."""

import json
from pathlib import Path

import pytest
import yaml

from ragpipe.core.resources import PACKAGE, conf_dir
from ragpipe.datasets.dataset import Dataset, open_dataset
from ragpipe.datasets.settings import DatasetSettings
from ragpipe.schema.sample import Output

CASES = PACKAGE / "data" / "demo" / "cases.jsonl"


def opened(base: Path, **more: object) -> Dataset:
    section = yaml.safe_load((conf_dir() / "dataset" / "demo.yaml").read_text("utf-8"))
    return open_dataset(DatasetSettings.model_validate({**section, **more}), base)


def test_the_shipped_option_reads_every_case_in_the_order_of_the_file(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in CASES.read_text("utf-8").splitlines()]
    written = [(line["id"], output["method"], output["answer"]) for line in lines for output in line["outputs"]]
    records = list(opened(tmp_path))
    outputs = [record.output for record in records if record.output is not None]
    assert [(output.sample_id, output.method, output.answer) for output in outputs] == written
    assert [record.sample.id for record in records] == [sample for sample, _, _ in written]


def test_no_label_and_no_chunk_is_lost_on_the_way(tmp_path: Path) -> None:
    lines = {line["id"]: line for line in map(json.loads, CASES.read_text("utf-8").splitlines())}
    for record in opened(tmp_path):
        line = lines[record.sample.id]
        read = record.sample.model_dump(mode="json", exclude_unset=True)
        assert read == {key: value for key, value in line.items() if key != "outputs"}
        assert record.output is not None
        output = next(o for o in line["outputs"] if o["method"] == record.output.method)
        assert record.output == Output.model_validate({**output, "sample_id": record.sample.id})


@pytest.mark.parametrize(("more", "samples"), [({"limit": 3}, 3), ({"filter": "tags[0] == 'novels'"}, 10)])
def test_a_part_of_it_can_be_taken(tmp_path: Path, more: dict[str, object], samples: int) -> None:
    assert len({record.sample.id for record in opened(tmp_path, **more)}) == samples


def test_its_digest_rests_on_the_content_alone(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_bytes(CASES.read_bytes())
    copy = opened(tmp_path, path="cases.jsonl")
    assert copy.digest == opened(tmp_path / "elsewhere").digest
    (tmp_path / "cases.jsonl").write_bytes(CASES.read_bytes().replace(b"2,400 ARB", b"2,500 ARB"))
    assert opened(tmp_path, path="cases.jsonl").digest != copy.digest
