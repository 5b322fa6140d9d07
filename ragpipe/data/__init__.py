"""Files and live systems become samples and outputs. `dataset` is the door; the shipped data sets lie beside.

A reader of a file format is registered under the kind `reader`, a system under `system`.
"""
