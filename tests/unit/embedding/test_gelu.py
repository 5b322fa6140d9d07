"""The error function and GELU in NumPy, compared with scipy."""

import numpy as np
from scipy.special import erf as scipy_erf
from scipy.special import ndtr

from ragpipe.embedding.gelu import erf, gelu

VALUES = np.concatenate([np.linspace(-9, 9, 300_001), [-1e30, -1e-30, 0.0, 1e-30, 1e30]]).astype(np.float32)


def test_erf_is_that_of_scipy_to_the_precision_of_float32():
    computed = erf(VALUES)
    assert computed.dtype == np.float32
    assert np.abs(computed.astype(np.float64) - scipy_erf(VALUES.astype(np.float64))).max() < 1e-7


def test_erf_is_odd_and_stays_within_one():
    assert np.array_equal(erf(-VALUES), -erf(VALUES))
    assert np.abs(erf(VALUES)).max() == 1


def test_gelu_is_the_value_times_the_normal_distribution():
    values = VALUES[np.abs(VALUES) < 10]
    expected = values.astype(np.float64) * ndtr(values.astype(np.float64))
    assert (np.abs(gelu(values) - expected) < 2e-7 * np.maximum(1, np.abs(values))).all()


def test_gelu_keeps_the_shape_whatever_the_layout_and_the_size():
    values = np.random.default_rng(3).normal(size=(7, 90, 130)).astype(np.float32)  # several blocks, the last one short
    flat = gelu(values)
    assert flat.shape == values.shape
    assert np.array_equal(gelu(values.transpose(2, 0, 1)), flat.transpose(2, 0, 1))
    assert gelu(values[:0]).shape == (0, 90, 130)
