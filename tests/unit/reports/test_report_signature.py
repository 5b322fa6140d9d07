from ragpipe.reports.signature import run_signature

LINE = dict(
    version="0.1.0", dataset="demo", dataset_digest="1a2b3c4d5e6f", judge="evidence 1", calibration="uncalibrated",
    metrics={"faithfulness": "v1 extract:v1@aaaa", "mrr": ""}, scoring={"level": 0.95}, n=412, iteration=2,
)  # fmt: skip


def test_every_part_is_there() -> None:
    # sha256 of {"level":0.95} starts with the eight digits below (sha256sum of the canonical text)
    assert run_signature(**LINE) == (  # type: ignore[arg-type]
        "ragpipe 0.1.0 | data demo@1a2b3c4d | judge evidence 1 (uncalibrated) | faithfulness(v1 extract:v1@aaaa) mrr | "
        "scoring 7ec0d3b7 | n=412 | iteration 2"
    )


def test_a_calibrated_judge_and_no_metrics() -> None:
    line = run_signature(**{**LINE, "calibration": "", "metrics": {}})  # type: ignore[arg-type]
    assert "judge evidence 1 | no metrics |" in line


def test_names_cannot_forge_a_part() -> None:
    line = run_signature(**{**LINE, "dataset": "x | judge gpt\n\x1b[2J"})  # type: ignore[arg-type]
    assert line.count(" | ") == 6
    assert "\n" not in line
    assert "\x1b" not in line
