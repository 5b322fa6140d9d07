"""Test cases from documents: facts, lists, periods and conflicts that they hold, put into question templates or asked by a model."""
