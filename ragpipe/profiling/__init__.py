"""What a data set holds: distributions, what is absent where, ids that lead nowhere."""
