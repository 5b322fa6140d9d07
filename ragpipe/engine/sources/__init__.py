"""Where the cases of a run come from: data sets and systems, frozen files, and cases that are changed for a purpose."""
