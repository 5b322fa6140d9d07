"""Beside the house: what few need, each in a folder of its own. No room below imports it; it enters through the registry."""
