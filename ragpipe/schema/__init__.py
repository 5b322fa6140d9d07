"""The data types that all rooms share: samples, outputs, cases, calls, scores, usage, prices, tables. No file is read here."""
