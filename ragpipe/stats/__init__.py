"""Statistics: intervals, coefficients of agreement, Student's t. Arrays in, numbers out."""
