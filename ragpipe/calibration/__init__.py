"""May the judge be believed: labels by people, agreement with them, means corrected by them. `run_calibration` is the door."""
