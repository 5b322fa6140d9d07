"""The error function and GELU in NumPy, compared with scipy."""

import numpy as np
from scipy.special import erf as scipy_erf
from scipy.special import ndtr

from ragpipe.judge.minilm import erf, gelu

VALUES = np.concatenate([np.linspace(-9, 9, 300_001), [-1e30, -1e-30, 0.0, 1e-30, 1e30]]).astype(np.float32)


def test_erf_is_that_of_scipy_to_the_precision_of_float32():
    computed = erf(VALUES)
    assert computed.dtype == np.float32
    assert np.abs(computed.astype(np.float64) - scipy_erf(VALUES.astype(np.float64))).max() < 1e-7


def test_gelu_is_the_value_times_the_normal_distribution():
    values = VALUES[np.abs(VALUES) < 10]
    expected = values.astype(np.float64) * ndtr(values.astype(np.float64))
    assert (np.abs(gelu(values) - expected) < 2e-7 * np.maximum(1, np.abs(values))).all()
