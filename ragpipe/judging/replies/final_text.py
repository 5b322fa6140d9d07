"""The final part of a reply: what is left without thinking and drafts.

Models think aloud in tags (`<think>`, `<reasoning>`, Mistral's `[THINK]`) or in channels (OpenAI's harmony format:
`<|channel|>analysis ... <|channel|>final`). A verdict inside the thinking is a draft. It is never read, even where there is
nothing else.
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
    """The reply without thinking and drafts; the text itself where it has none.

    Closed thinking is removed. A closing tag without an opening one ends thinking that was opened in the prompt. Of several
    channels the last one counts, and it must be the final one. Tags inside a JSON object belong to its texts. Raises
    Unparsable for a reply that breaks off inside its thinking, and for thinking that opens after the start of an unclosed
    object: it may be part of the object's texts.
    """
    return _Scanner(text).final_part() if _TAG.search(text) else text


class _Scanner:
    """Walks through the tags and objects of a text, and keeps what is outside of thinking."""

    def __init__(self, text: str):
        self._text = text
        self._kept: list[str] = []
        self._start = 0  # of the part that is not kept yet
        self._position = 0
        self._objects = 0
        self._channel = ""
        self._in_unclosed_object = False

    def final_part(self) -> str:
        while mark := _MARK.search(self._text, self._position):
            self._position = mark.end()
            if mark["brace"]:
                self._skip_object(mark.start())
            elif mark["opened"]:
                self._skip_thinking(mark.start())
            else:  # the end of thinking that was opened in the prompt, or the beginning of a channel
                self._channel = self._channel if mark["closed"] else mark["channel"].lower()
                self._kept, self._start, self._in_unclosed_object = [], self._position, False
        text = "".join([*self._kept, self._text[self._start :]])
        if self._channel not in ("", "final"):
            raise Unparsable(
                f"the reply breaks off inside its thoughts (channel {self._channel!r}): it holds no final answer"
            )
        return _MESSAGE_END.split(text, maxsplit=1)[0] if self._channel else text

    def _skip_object(self, start: int) -> None:
        self._objects += 1
        if self._objects > MAX_GROUPS:
            return
        end = object_end(self._text, start)
        if end is None and _OBJECT.match(self._text, start):
            self._in_unclosed_object = True
        self._position = end or self._position

    def _skip_thinking(self, start: int) -> None:
        if self._in_unclosed_object:
            raise Unparsable("thoughts inside a JSON object that has no end: what was said cannot be told from them")
        closing = _CLOSING.search(self._text, self._position)
        if closing is None:
            raise Unparsable("the reply breaks off inside its thoughts: it holds no final answer")
        self._kept.append(self._text[self._start : start])
        self._start = self._position = closing.end()
