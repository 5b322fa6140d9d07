"""Regular expressions from versioned files, run with a time limit: policies and refusals."""
