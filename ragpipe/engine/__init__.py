"""The engine of a run: its inputs, identity and folder, what each task does differently, and how it is stopped and resumed."""
