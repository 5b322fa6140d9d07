"""Statistics: intervals, agreement with labels, differences, Student's t. Arrays in, numbers out."""
