"""Recorded verdicts as scores: a table of what is recorded, how it is taken, and the score that must come of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.cli import compose
from ragpipe.core.errors import ConfigError
from ragpipe.metrics.from_config import load_metric
from ragpipe.prompting.library import PromptLibrary
from ragpipe.testing.scripted import make_case, score_of, shipped_metric

GARBAGE = {"unreadable": "garbage"}
GRADE = {"low": 1, "high": 4}

# (what, recorded, how it is taken, value or status, reason)
TABLE = [
    ("a number", {"s": 0.25}, {}, 0.25, None),
    ("true is 1", {"s": True}, {"binary": True}, 1.0, None),
    ("false is 0", {"s": False}, {"binary": True}, 0.0, None),
    ("another name", {"rl_f": 0.5}, {"from": "rl_f"}, 0.5, None),
    ("the ends of its scale", {"s": 4}, GRADE, 4.0, None),
    ("a count has no scale", {"s": 17}, {"low": None, "high": None}, 17.0, None),
    ("the mean of the annotators", {"s": {"a1": 4, "a2": 2, "a3": 3}}, GRADE, 3.0, None),  # (4 + 2 + 3) / 3
    ("an annotator who gave none is left out", {"s": {"a1": 4, "a2": None, "a3": 3}}, GRADE, 3.5, None),  # (4 + 3) / 2
    ("one annotator", {"s": {"a1": 4, "a2": 2}}, {"from": "s.a2", **GRADE}, 2.0, None),
    ("one of a list, by its place", {"s": [4, 2, 3]}, {"from": "s.2", **GRADE}, 2.0, None),
    ("a place after the list", {"s": [4, 2, 3]}, {"from": "s.4", **GRADE}, "skipped", "not_recorded"),
    ("a name with dots", {"gpt-3.5": 0.5}, {"from": "gpt-3.5"}, 0.5, None),
    ("a part of a name with dots", {"gpt-3.5": {"v1.0": 0.5}}, {"from": "gpt-3.5.v1.0"}, 0.5, None),
    ("the whole name comes first", {"s.a": 1, "s": {"a": 0}}, {"from": "s.a"}, 1.0, None),
    ("the share of a list", {"s": [True, False, True, True]}, {}, 0.75, None),
    ("median of two", {"s": [1, 4]}, {"combine": "median", **GRADE}, 2.5, None),
    ("median of three", {"s": [1, 4, 4]}, {"combine": "median", **GRADE}, 4.0, None),
    ("min: all of them", {"s": [1, 1, 0]}, {"combine": "min", "binary": True}, 0.0, None),
    ("max: any of them", {"s": [0, 1, 0]}, {"combine": "max", "binary": True}, 1.0, None),
    ("majority of three", {"s": [0.5, 1, 1]}, {"combine": "majority"}, 1.0, None),
    ("majority is more than half", {"s": [1, 1, 0, 0.5]}, {"combine": "majority"}, "skipped", "no_majority"),
    ("three different labels", {"s": [0, 0.5, 1]}, {"combine": "majority"}, "skipped", "no_majority"),
    ("nothing of this name", {"other": 1}, {}, "skipped", "not_recorded"),
    ("null", {"s": None}, {}, "skipped", "not_recorded"),
    ("nobody gave one", {"s": {"a1": None, "a2": None}}, {}, "skipped", "not_recorded"),
    ("an annotator who is not there", {"s": {"a1": 1}}, {"from": "s.a7"}, "skipped", "not_recorded"),
    ("no part of a number", {"s": 1}, {"from": "s.a7"}, "skipped", "not_recorded"),
    ("no part of an unreadable one", {"s": GARBAGE}, {"from": "s.unreadable"}, "skipped", "not_recorded"),
    ("no claims", {"s": []}, {}, "skipped", "no_verdicts"),
    ("no claims, which counts as 1", {"s": []}, {"if_empty": 1}, 1.0, "no verdicts: `if_empty`"),
    ("only null claims are no empty list", {"s": [None]}, {"if_empty": 1}, "skipped", "not_recorded"),
    ("unreadable", {"s": GARBAGE}, {}, "error", "unreadable: 'garbage'"),
    ("one of them unreadable", {"s": {"a1": 1, "a2": GARBAGE}}, {}, "error", "unreadable: 'garbage' (a2)"),
    ("off the scale", {"s": 5}, GRADE, "error", "off_scale: 5 is not within 1 to 4"),
    ("one of them off the scale", {"s": [1, 0]}, GRADE, "error", "off_scale: 0 is not within 1 to 4 (2)"),
    ("a rounding beyond the scale is its end", {"s": 1.000000238418579}, {}, 1.0, None),
    ("a rounding under the scale", {"s": -1e-7}, {}, 0.0, None),
    ("a rounding of a binary one", {"s": 1.0000001}, {"binary": True}, 1.0, None),
    ("more than a rounding, named in full", {"s": 1.00001}, {}, "error", "off_scale: 1.00001 is not within 0 to 1"),
    ("not binary", {"s": 0.5}, {"binary": True}, "error", "not_binary: 0.5 is neither 0 nor 1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("recorded", "taken", "value", "reason"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_score_of_a_recorded_value(recorded, taken, value, reason):
    found = score_of(shipped_metric("recorded", take={"s": taken}), make_case(recorded=recorded))["s"]
    assert (found.value if found.status == "ok" else found.status, found.reason) == (value, reason)


VERDICTS = st.none() | st.booleans() | st.floats(-2, 3, allow_subnormal=False) | st.just(GARBAGE)


@pytest.mark.slow
@given(st.lists(VERDICTS, max_size=5), st.sampled_from(["mean", "median", "majority", "min", "max"]))
def test_a_score_lies_among_the_verdicts_it_is_made_of_and_none_is_lost(verdicts, combine):
    found = score_of(shipped_metric("recorded", take={"s": {"combine": combine}}), make_case(recorded={"s": verdicts}))[
        "s"
    ]
    given_ones = [v for v in verdicts if v is not None]
    good = [float(v) for v in given_ones if v is not GARBAGE and -1e-6 <= v <= 1 + 1e-6]
    if len(good) < len(given_ones):
        assert found.status == "error"
    elif not given_ones:
        assert found.status == "skipped"
    elif found.status == "ok":
        assert min(good) - 1e-12 <= found.value <= max(good) + 1e-12 or found.value in (0, 1)
        assert 0 <= found.value <= 1
    else:
        assert (combine, found.reason) == ("majority", "no_majority")


def test_single_verdicts_stay_in_the_details():
    people = {"a1": 4, "a2": None, "a3": 3}
    found = score_of(shipped_metric("recorded", take={"s": GRADE}), make_case(recorded={"s": people}))["s"]
    assert found.details == {"verdicts": people}


def test_a_score_is_declared_as_it_is_taken():
    take = {"a": {"low": -2, "high": 2, "higher_is_better": False, "diagnostic": False}, "b": {"binary": True}}
    a, b = shipped_metric("recorded", take=take).scores()
    assert (a.name, a.low, a.high, a.higher_is_better, a.binary, a.diagnostic) == ("a", -2, 2, False, False, False)
    assert (b.name, b.low, b.high, b.higher_is_better, b.binary, b.diagnostic) == ("b", 0, 1, True, True, True)


def test_an_output_without_any_of_them_is_skipped_as_a_whole():
    metric = shipped_metric("recorded", take={"a": {}, "b": {}})
    assert metric.skip_reason(make_case()) == "not_recorded"
    assert metric.skip_reason(make_case(recorded={"b": 0})) is None


WRONG = [
    ("half a scale", {"low": None}, "`low` and `high` both"),
    ("a scale upside down", {"low": 4, "high": 1}, "`low` below `high`, found 4 and 1"),
    ("binary on another scale", {"binary": True, "high": 4}, "a binary score from 0 to 1"),
    ("empty off the scale", {"if_empty": 0, **GRADE}, "`if_empty` on the scale, found 0"),
    ("unknown key", {"hgh": 4}, "there is no 'hgh'"),
    ("unknown rule", {"combine": "mode"}, "'mean', 'median', 'majority', 'min' or 'max'"),
    ("a number as a name", {"from": 7}, "string"),
    ("an infinite scale", {"high": float("inf")}, "finite"),
]


@pytest.mark.parametrize(("taken", "says"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_entry_is_refused_with_its_key(taken, says):
    with pytest.raises(ConfigError) as refused:
        load_metric("r", {"class": "RecordedMetric", "take": {"s": taken}}, PromptLibrary([]))
    assert refused.value.problems[0].key.startswith("metrics.r.take.s")
    assert says in str(refused.value)


@pytest.mark.slow
def test_without_entries_the_configuration_is_wrong():
    with pytest.raises(ConfigError, match=r"metrics\.recorded\.take"):
        compose(["dataset=demo", "metrics=[recorded]"])
