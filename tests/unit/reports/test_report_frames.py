import math
import subprocess
import sys
from pathlib import Path

import pytest

import ragpipe
from ragpipe.core.errors import DataError
from ragpipe.reports.run_data import load_run
from ragpipe.schema.score import ScoreSpec
from tests.support.run_tables import Row, score, write_run

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

SPECS = [ScoreSpec("faithfulness")]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    root = tmp_path / "run"
    write_run(
        root, [Row("007", "a", {"faithfulness": 0.5}), Row("1e5", "None", {"faithfulness": ("error", "refused: x")})]
    )
    score(root, SPECS)
    return root


@pytest.mark.parametrize("way", ["", "iteration-1"])
def test_frames_and_dictionaries(run: Path, way: str) -> None:
    found = load_run(run / way)
    assert list(found.records["sample_id"]) == ["007", "1e5"]  # ids stay texts
    assert list(found.records["method"]) == ["a", "None"]
    assert found.records["faithfulness"][0] == 0.5
    assert math.isnan(found.records["faithfulness"][1])
    assert list(found.scores["status"]) == ["ok", "error"]
    assert len(found.judge_inputs) == 0
    assert found.metrics["overall"]["scores"]["faithfulness"]["n_error"] == 1
    assert found.cost["used"]["calls"] == 0


def test_the_public_name_follows_a_link_to_the_newest_run(run: Path) -> None:
    latest = run.parent / "latest"
    latest.symlink_to(run)
    assert ragpipe.load(latest).path == run.resolve()


def test_latest_may_be_a_text_where_there_are_no_links(run: Path) -> None:
    latest = run.parent / "latest"
    latest.write_text(run.name + "\n")
    assert load_run(latest).path == run.resolve()
    latest.write_text("../elsewhere\n")
    with pytest.raises(DataError, match="a pointer to"):
        load_run(latest)


def test_what_is_no_run_is_refused(tmp_path: Path, run: Path) -> None:
    with pytest.raises(DataError, match="expected: a run folder"):
        load_run(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        load_run(run, iteration=2)
    (run / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"manifest\.json(?s:.*)no such file"):
        load_run(run)


@pytest.mark.parametrize(
    ("content", "said"),
    [('{"a": NaN}', "NaN is not JSON"), ("[]", "a JSON list"), ("{", "no readable JSON"), ("[" * 200_000, "no readable JSON"), (b"\xff\xfe", "no readable JSON")],
)  # fmt: skip
def test_broken_json_is_named(run: Path, content: str | bytes, said: str) -> None:
    (run / "iteration-1/metrics.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=said):
        _ = load_run(run).metrics


def test_broken_parquet_is_named(run: Path) -> None:
    (run / "iteration-1/records.parquet").write_bytes(b"PAR1 not at all PAR1")
    with pytest.raises(DataError, match="no readable Parquet file"):
        _ = load_run(run).records


def test_links_in_a_strangers_folder_are_not_followed(run: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (run / "iteration-1/cost.json").unlink()
    (run / "iteration-1/cost.json").symlink_to(secret)
    with pytest.raises(DataError, match="a symbolic link"):
        _ = load_run(run).cost
    (run / "iteration-2").symlink_to(run / "iteration-1")
    with pytest.raises(DataError):
        load_run(run, iteration=2)


def script(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_pandas_is_kept_away_until_somebody_imports_it() -> None:
    code = """
import sys
from ragpipe.store.files.lazy_pandas import keep_pandas_away
keep_pandas_away(); keep_pandas_away()
import numpy as np, pyarrow as pa
table = pa.table({"a": pa.array([1, None]), "b": pa.array(["x", None]), "c": pa.array(np.arange(2.0))})
pa.array([True]).to_numpy(zero_copy_only=False); table.schema.empty_table()
print("pandas" in sys.modules)
import pandas as pd
print(pa.array(pd.Categorical(["a"])).type.index_type, table.to_pandas()["b"][0])
print(pa.array(pd.Series([1.5, None])).null_count, pa.Table.from_pandas(pd.DataFrame({"a": ["x", None]}))["a"].null_count)
"""
    assert script(code) == "False\nint8 x\n1 1"


def test_scoring_and_reporting_need_no_pandas(run: Path) -> None:
    code = """
import sys
from pathlib import Path
from ragpipe.store.files.lazy_pandas import keep_pandas_away
keep_pandas_away()
from tests.support.run_tables import score
from ragpipe.schema.score import ScoreSpec
from ragpipe.reports.console import Console
from ragpipe.reports.settings import ReportSettings
from ragpipe.stages.write_reports import write_reports
root = Path(sys.argv[1])
score(root, [ScoreSpec("faithfulness")])
write_reports(root / "iteration-1", target=root, settings=ReportSettings(formats=["markdown"]), console=Console())
print([name for name in ("pandas", "scipy", "litellm", "rich", "hydra") if name in sys.modules])
"""
    assert script(code, str(run)) == "[]"
