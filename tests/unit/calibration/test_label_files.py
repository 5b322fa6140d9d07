"""A draw and its files: the probability of every drawn case is right, by all orders of a few cases and by many seeds of more;
what is drawn from; what is written is read back, and what is damaged is refused by name."""

import json
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.calibration.label_files import (
    DRAW,
    LABEL_COLUMNS,
    LABELS,
    Draw,
    LabelGrade,
    LabelSettings,
    StratumSize,
    asked_of,
    draw_cases,
    draw_folders,
    random_order,
    read_draw,
    read_labels,
    read_population,
    write_draw,
    write_rows,
)
from ragpipe.core.errors import ConfigError, DataError, FormatMismatch
from ragpipe.store.table_rows import table_of

FEW = ["a", "a", "b", "b", "b", "b", "b"]


def draws(size, random_size):
    """The draw of every order of the few cases."""
    return [draw_cases(order, FEW, size, random_size=random_size) for order in permutations(range(7))]


@pytest.mark.parametrize(("size", "random_size"), [(5, 5), (4, 2), (5, 3), (6, 1)])
def test_each_case_is_drawn_as_often_as_its_probability_says(size, random_size):
    by_counts = defaultdict(list)
    for draw in draws(size, random_size):
        by_counts[draw.drawn["a"], draw.drawn["b"]].append(draw)
    for (of_a, of_b), same in by_counts.items():
        often = Counter(place for draw in same for place in draw.places)
        expected = [Fraction(of_a, 2)] * 2 + [Fraction(of_b, 5)] * 5
        assert [Fraction(often[place], len(same)) for place in range(7)] == expected
        assert [same[0].probability(stratum) for stratum in FEW] == [float(share) for share in expected]


def test_the_random_part_is_a_simple_random_sample():
    heads = Counter(frozenset(draw.places[: draw.random]) for draw in draws(5, 3))
    assert len(heads) == 35  # 7 over 3
    assert len(set(heads.values())) == 1


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=40),
    st.integers(6, 30), st.integers(0, 20), st.floats(0, 1), st.integers(0, 9),
)  # fmt: skip
def test_a_larger_draw_contains_the_smaller_one(strata, size, more, share, seed):
    order = random_order([str(place) for place in range(len(strata))], seed)
    first = draw_cases(order, strata, size, random_size=round(share * size))
    grown = draw_cases(order, strata, size + more, random_size=round(share * (size + more)))
    slack = 2 * len(set(strata))  # two of every stratum are drawn, also where the random part has taken all
    assert min(size, len(strata)) <= len(first.places) <= min(size + slack, len(strata))
    assert set(first.places) <= set(grown.places)
    assert len(set(grown.places)) == len(grown.places) >= min(size + more, len(strata))
    assert Counter(strata[place] for place in grown.places) == Counter(grown.drawn)
    assert grown.places[: grown.random] == order[: grown.random]


def test_the_strata_get_as_many_cases_each():
    assert draw_cases(range(100), ["a"] * 40 + ["b"] * 60, 30, random_size=0).drawn == {"a": 15, "b": 15}


def test_a_draw_of_more_than_all_is_all():
    draw = draw_cases([2, 0, 1], ["all"] * 3, 60, random_size=60)
    assert (draw.places, draw.random, draw.probability("all")) == ([2, 0, 1], 3, 1.0)


def test_more_strata_than_the_draw_can_serve_are_refused():
    with pytest.raises(ConfigError, match=r"at least 2 cases of each of the 5 strata"):
        draw_cases(range(20), list("abcde") * 4, 9, random_size=2)


def test_the_order_depends_on_seed_and_keys_alone():
    keys = [f"q{number}" for number in range(50)]
    order = random_order(keys, 7)
    assert order == random_order(keys, 7) != random_order(keys, 8)
    without = random_order(keys[1:], 7)
    assert [place - 1 for place in order if place] == without


@pytest.mark.parametrize("count", [1, 7, 60, 101])
def test_a_fifth_of_the_cases_is_for_all_annotators(count):
    asked = asked_of(count, ["ann", "bob", "cy"])
    assert asked.count(None) == int(np.ceil(count / 5))
    turns = Counter(names[0] for names in asked if names)
    assert max(turns.values(), default=0) - min((turns[name] for name in ("ann", "bob", "cy")), default=0) <= 1
    assert asked_of(count + 9, ["ann", "bob", "cy"])[:count] == asked


def test_one_annotator_is_asked_for_everything():
    assert asked_of(3, []) == asked_of(3, ["ann"]) == [None, None, None]


def records(path, values):
    """A table of the columns that are read: cases q0, q1 ... of one method."""
    count = len(values)
    path.parent.mkdir(parents=True)
    table = pa.table({
        "sample_id": [f"q{number}" for number in range(count)], "method": ["a"] * count, "repeat": [1] * count,
        "f": pa.array(values, pa.float64()),
    })  # fmt: skip
    pq.write_table(table, path)
    return path


def test_the_population_has_the_means_over_the_iterations(tmp_path):
    """q1 has a value in the second iteration only, q3 in none."""
    first = records(tmp_path / "1" / "r.parquet", [1.0, None, 0.0, None])
    second = records(tmp_path / "2" / "r.parquet", [0.5, 0.25, 0.0, None])
    population = read_population([first, second], "f")
    assert population.keys == [("q0", "a", 1), ("q2", "a", 1), ("q1", "a", 1)]
    assert population.values == [0.75, 0.0, 0.25]


def test_a_score_without_a_value_has_no_population(tmp_path):
    path = records(tmp_path / "1" / "r.parquet", [None, None])
    with pytest.raises(DataError, match="no case with a value"):
        read_population([path], "f")


@pytest.mark.parametrize("settings", [{"draw": "colour"}, {"annotators": ["ann", "ann"]}, {"annotators": [" "]}, {"n": 0}])
def test_wrong_settings_are_refused(settings):
    with pytest.raises(ValueError, match=r"Input should be|different names|greater than"):
        LabelSettings.model_validate(settings)


LABEL = {
    "sample_id": "s1", "method": "a", "repeat": 1, "answer_sha256": "0" * 64, "annotator": "ann", "label": 0.5, "grade": "partly",
    "note": None, "part": "random", "stratum": "all", "probability": 0.25, "at": "2026-01-01T00:00:00Z",
}  # fmt: skip


def a_draw(**changes):
    fields = {
        "draw_id": "faithfulness-1", "run_id": "r", "metric": "faithfulness", "score": "faithfulness", "question": "All?",
        "grades": [LabelGrade(name="all", value=1.0)], "low": 0.0, "high": 1.0, "seed": 0, "cases": 8,
        "strata": [StratumSize(name="all", cases=8, drawn=2)], "settings": {"n": 2},
    }  # fmt: skip
    return Draw.model_validate(fields | changes)


def test_labels_are_read_back_with_exactly_the_columns(tmp_path):
    rows = [LABEL, LABEL | {"annotator": "bob", "label": None, "grade": None, "note": "unclear"}]
    write_rows(tmp_path / LABELS, table_of(rows, LABEL_COLUMNS))
    assert read_labels(tmp_path).to_pylist() == rows


def test_a_draw_without_labels_says_how_to_get_them(tmp_path):
    with pytest.raises(DataError, match=r"label\.import"):
        read_labels(tmp_path)


def test_a_table_with_other_columns_is_refused(tmp_path):
    table = table_of([LABEL], LABEL_COLUMNS)
    write_rows(tmp_path / LABELS, table.drop_columns(["label"]))
    with pytest.raises(DataError, match="no column label"):
        read_labels(tmp_path)
    write_rows(tmp_path / LABELS, table.set_column(5, "label", pa.array(["half"])))
    with pytest.raises(DataError, match="columns of"):
        read_labels(tmp_path)


@pytest.mark.parametrize(("change", "message"), [
    ({"format": 3}, "format 3"),
    ({"cases": "eight"}, "cases"),
    ({"more": 1}, "more"),
])  # fmt: skip
def test_a_damaged_draw_is_refused(tmp_path, change, message):
    (tmp_path / DRAW).write_text(json.dumps(a_draw().model_dump() | change))
    with pytest.raises(DataError, match=message) as error:
        read_draw(tmp_path)
    assert isinstance(error.value, FormatMismatch) == ("format" in change)


def test_the_draws_of_a_run(tmp_path):
    assert draw_folders(tmp_path) == []
    for name in ("b", "a", "empty"):
        (tmp_path / "labels" / name).mkdir(parents=True)
    for name in ("b", "a"):
        write_draw(tmp_path / "labels" / name, a_draw(draw_id=name))
    (tmp_path / "labels" / "c").symlink_to(tmp_path / "labels" / "a")
    assert [folder.name for folder in draw_folders(tmp_path)] == ["a", "b"]
