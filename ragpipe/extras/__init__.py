"""Beside the house: what few need. No room below imports it; it enters through the table of tasks."""
