"""Prompts: versioned Jinja templates, sandboxed and strict, in which every value is fenced.

`template_language` is the allowed part of Jinja, `template_files` reads a file, `library` finds and compiles templates,
`prompt` renders one, `fences` marks the values off from the instructions, `foreign_tags` finds values that forge a fence,
`reply_keys` checks that a template asks for what is read.
"""
