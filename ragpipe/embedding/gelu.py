"""The activation of BERT, GELU, and the error function that it needs, in NumPy."""

from __future__ import annotations

import numpy as np

from ragpipe.embedding.model_files import Floats

_NUMERATOR = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_DENOMINATOR = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
_LIMIT = 4.0
"""From here on erf is 1 to 1.6e-8."""
_BLOCK = 32_768
"""Values computed together: the intermediate arrays fit the processor's cache."""


def gelu(inputs: Floats) -> Floats:
    """`x * Phi(x)` for each float32 value, with the exact normal distribution: the tanh form differs in the fourth digit."""
    outputs = np.empty_like(inputs, order="C")
    flat_inputs, flat_outputs = inputs.reshape(-1), outputs.reshape(-1)
    for start in range(0, flat_inputs.size, _BLOCK):
        block = flat_inputs[start : start + _BLOCK]
        flat_outputs[start : start + _BLOCK] = block * np.float32(0.5) * (1 + erf(block * np.float32(1 / np.sqrt(2))))
    return outputs


def erf(inputs: Floats) -> Floats:
    """The error function of each float32 value, to an absolute error of 1e-7.

    Source: the rational approximation `x * P(x^2) / Q(x^2)` of Eigen (`generic_fast_erf_float`), computed in float64.
    """
    clipped = np.clip(inputs.astype(np.float64), -_LIMIT, _LIMIT)
    squares = clipped * clipped
    ratio: Floats = clipped * _polynomial(_NUMERATOR, squares) / _polynomial(_DENOMINATOR, squares)
    return ratio.astype(np.float32)


def _polynomial(coefficients: tuple[float, ...], values: np.ndarray) -> np.ndarray:
    """The polynomial with these coefficients, highest power first (Horner's scheme)."""
    total = np.full_like(values, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= values
        total += coefficient
    return total
