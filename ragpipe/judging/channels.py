"""The final part of a reply: what is left when thoughts and drafts are taken out.

Models think aloud in tags (`<think>`, `<reasoning>`, Mistral's `[THINK]`) or in channels (OpenAI's harmony format:
`<|channel|>analysis ... <|channel|>final`). A verdict in a thought is a draft: it is never read, not even where nothing
else was said.
"""

from __future__ import annotations

import re

from ragpipe.judging.strict_json import MAX_GROUPS, Unparsable, object_end

_NAMES = r"(?:think(?:ing)?|thoughts?|reasoning|reflection|scratchpad|analysis)"
_OPENED, _CLOSED = rf"<{_NAMES}>|\[THINK\]", rf"</{_NAMES}>|\[/THINK\]"
_CHANNEL = r"<\|channel\|>\s*(?P<channel>\w*)[^\S\n]*(?:<\|constrain\|>\s*\w*\s*)?(?:<\|message\|>)?"
_TAG = re.compile(rf"{_OPENED}|{_CLOSED}|{_CHANNEL}", re.I)
_MARK = re.compile(rf"(?P<brace>\{{)|(?P<opened>{_OPENED})|(?P<closed>{_CLOSED})|{_CHANNEL}", re.I)
_CLOSING = re.compile(_CLOSED, re.I)
_MESSAGE_END = re.compile(r"<\|(?:end|return|call|start)\|>")


def final_part(text: str) -> str:
    """The reply without thoughts and drafts; the text itself where it has none.

    Closed thoughts are cut out. A closing tag without an opening one ends thoughts that were opened in the prompt. Of
    channels the last one counts, and it must be the final one. Tags inside a JSON object belong to its texts. Raises
    Unparsable for a reply that breaks off inside its thoughts.
    """
    if not _TAG.search(text):
        return text
    kept: list[str] = []
    start = place = objects = 0
    channel = ""
    while mark := _MARK.search(text, place):
        place = mark.end()
        if mark["brace"]:
            objects += 1
            place = (object_end(text, mark.start()) if objects <= MAX_GROUPS else None) or place
        elif mark["opened"]:
            closing = _CLOSING.search(text, place)
            if closing is None:
                raise Unparsable("the reply breaks off inside its thoughts: it holds no final answer")
            kept.append(text[start : mark.start()])
            start = place = closing.end()
        else:  # the end of thoughts that were opened in the prompt, or the beginning of a channel
            channel = channel if mark["closed"] else mark["channel"].lower()
            kept, start = [], place
    kept.append(text[start:])
    if channel not in ("", "final"):
        raise Unparsable(f"the reply breaks off inside its thoughts (channel {channel!r}): it holds no final answer")
    return _MESSAGE_END.split("".join(kept), maxsplit=1)[0] if channel else "".join(kept)
