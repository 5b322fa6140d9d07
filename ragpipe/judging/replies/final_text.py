"""The final part of a reply: what is left when thoughts and drafts are taken out.

Models think aloud in tags (`<think>`, `<reasoning>`, Mistral's `[THINK]`) or in channels (OpenAI's harmony format:
`<|channel|>analysis ... <|channel|>final`). A verdict in a thought is a draft: it is never read, not even where nothing
else was said.
"""

from __future__ import annotations

import re

from ragpipe.judging.replies.reply_json import MAX_GROUPS, Unparsable, object_end

_NAMES = r"(?:think(?:ing)?|thoughts?|reasoning|reflection|scratchpad|analysis)"
_OPENED, _CLOSED = rf"<{_NAMES}>|\[THINK\]", rf"</{_NAMES}>|\[/THINK\]"
_CHANNEL = r"<\|channel\|>\s*(?P<channel>\w*)[^\S\n]*(?:<\|constrain\|>\s*\w*\s*)?(?:<\|message\|>)?"
_TAG = re.compile(rf"{_OPENED}|{_CLOSED}|{_CHANNEL}", re.I)
_MARK = re.compile(rf"(?P<brace>\{{)|(?P<opened>{_OPENED})|(?P<closed>{_CLOSED})|{_CHANNEL}", re.I)
_OBJECT = re.compile(r'\{\s*"')
_CLOSING = re.compile(_CLOSED, re.I)
_MESSAGE_END = re.compile(r"<\|(?:end|return|call|start)\|>")


def final_part(text: str) -> str:
    """The reply without thoughts and drafts; the text itself where it has none.

    Closed thoughts are cut out. A closing tag without an opening one ends thoughts that were opened in the prompt. Of
    channels the last one counts, and it must be the final one. Tags inside a JSON object belong to its texts. Raises
    Unparsable for a reply that breaks off inside its thoughts, and for thoughts that open behind the beginning of an object
    without an end: they may be texts of it.
    """
    if not _TAG.search(text):
        return text
    kept: list[str] = []
    start = place = objects = 0
    channel, broken = "", False
    while mark := _MARK.search(text, place):
        place = mark.end()
        if mark["brace"]:
            objects += 1
            if objects <= MAX_GROUPS:
                end = object_end(text, mark.start())
                broken = broken or (end is None and _OBJECT.match(text, mark.start()) is not None)
                place = end or place
        elif mark["opened"]:
            if broken:
                raise Unparsable(
                    "thoughts inside a JSON object that has no end: what was said cannot be told from them"
                )
            closing = _CLOSING.search(text, place)
            if closing is None:
                raise Unparsable("the reply breaks off inside its thoughts: it holds no final answer")
            kept.append(text[start : mark.start()])
            start = place = closing.end()
        else:  # the end of thoughts that were opened in the prompt, or the beginning of a channel
            channel = channel if mark["closed"] else mark["channel"].lower()
            kept, start, broken = [], place, False
    kept.append(text[start:])
    if channel not in ("", "final"):
        raise Unparsable(f"the reply breaks off inside its thoughts (channel {channel!r}): it holds no final answer")
    return _MESSAGE_END.split("".join(kept), maxsplit=1)[0] if channel else "".join(kept)
