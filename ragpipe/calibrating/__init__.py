"""A judge compared with labels by people: agreement with intervals, the calibration file, the fit of the embedded judge."""
