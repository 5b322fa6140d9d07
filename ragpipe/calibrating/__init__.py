"""A judge held against labels by people: agreement with intervals, the calibration file, the fit of the embedded judge."""
