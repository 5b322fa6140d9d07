"""Labels by people: which cases are drawn for them, the page they label on, and the files that come back."""
