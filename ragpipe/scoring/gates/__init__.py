"""Gates: settings, calibration of judges, measuring one iteration (`gate_results`), deciding over all of them (`gate_rules`)."""
