"""Folders of Markdown documents: front matter, headings, sections."""
