import pytest
from scipy import stats

from ragpipe.stats.student_t import normal_quantile, t_quantile, two_sided_tail


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 10, 29, 30, 100, 411, 5000, 100_000, 1_000_000])
def test_quantile_equals_scipys(level: float, df: int) -> None:
    assert t_quantile(level, df) == pytest.approx(stats.t.ppf(0.5 + level / 2, df), rel=1e-8)


@pytest.mark.parametrize(("t", "df"), [(0.1, 1), (1.0, 3), (2.262157, 9), (4.0, 7), (0.5, 200), (12.7, 1)])
def test_tail_equals_scipys(t: float, df: int) -> None:
    assert two_sided_tail(t, df) == pytest.approx(2 * stats.t.sf(t, df), rel=1e-10)


@pytest.mark.parametrize(
    # two-sided 95 % and 99 % points as printed in Fisher and Yates' table
    ("level", "df", "printed"),
    [(0.95, 1, 12.706), (0.95, 4, 2.776), (0.95, 9, 2.262), (0.95, 30, 2.042), (0.99, 5, 4.032), (0.99, 120, 2.617)],
)
def test_quantile_equals_the_printed_table(level: float, df: int, printed: float) -> None:
    assert round(t_quantile(level, df), 3) == printed


def test_normal_quantile() -> None:
    assert normal_quantile(0.95) == pytest.approx(1.959963984540054, rel=1e-12)


@pytest.mark.parametrize(("level", "df"), [(0.95, 0), (0.0, 5), (1.0, 5)])
def test_nonsense_is_refused(level: float, df: int) -> None:
    with pytest.raises(ValueError, match="expected df"):
        t_quantile(level, df)
