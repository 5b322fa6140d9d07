"""The final part of a reply: what is left without thinking and drafts.

Models think aloud in tags (`<think>`, `<reasoning>`, Mistral's `[THINK]`, Kimi's `\u25c1think\u25b7`, Cohere's
`<|START_THINKING|>`) or in channels (OpenAI's harmony format: `<|channel|>analysis ... <|channel|>final`; a server that
strips special tokens leaves `analysis... assistantfinal...`). A verdict inside the thinking is a draft. It is never read,
even where there is nothing else.
"""

from __future__ import annotations

import re

from ragpipe.judging.replies.reply_json import MAX_GROUPS, Unparsable, object_end

_NAMES = r"(?:(?:\w{1,12}:|ant)?think(?:ing)?|thoughts?|reason(?:ing)?|reflection|scratchpad|analysis|inner_monologue)"
_OPENED = rf"<{_NAMES}(?:\s[^<>]{{0,80}})?>|\[THINK\]|\u25c1think\u25b7|<\|(?:begin_of_|start_)(?:thinking|thought|reasoning)\|>"
_CLOSED = rf"</{_NAMES}>|\[/THINK\]|\u25c1/think\u25b7|<\|end_(?:of_)?(?:thinking|thought|reasoning)\|>"
_STEM = re.compile("think|thought|reason|reflection|scratchpad|analysis|monologue", re.I)
_CHANNEL = r"<\|channel\|>\s*(?P<channel>\w*)[^\S\n]*(?:<\|constrain\|>\s*\w*\s*)?(?:<\|message\|>)?"
_TAG = re.compile(rf"{_OPENED}|{_CLOSED}|{_CHANNEL}", re.I)
_HINTS = ("<", "\u25c1", "THINK]", "think]", "Think]")  # one of them is in every tag; most replies have none
_MARK = re.compile(rf"(?P<brace>\{{)|(?P<opened>{_OPENED})|(?P<closed>{_CLOSED})|{_CHANNEL}", re.I)
_OBJECT = re.compile(r'\{\s*"')
_CLOSING = re.compile(_CLOSED, re.I)
_MESSAGE_END = re.compile(r"<\|(?:end|return|call|start)\|>")
_STRIPPED_ANALYSIS = re.compile(r"\s*(?:analysis|commentary)(?=[A-Z])")
_STRIPPED_FINAL = "assistantfinal"
_TURN_BEGIN = re.compile(r"\A(?:\s*<\|\w{1,40}\|>(?:assistant\b)?)+")
_TURN_END = re.compile(r"(?:<\|\w{1,40}\|>|</s>|\s)+\Z")
_NO_FINAL = "the reply breaks off inside its thoughts: it holds no final answer"


def final_part(text: str) -> str:
    """The reply without thinking and drafts; the text itself where it has none.

    Closed thinking is removed. A closing tag without an opening one ends thinking that was opened in the prompt. Of several
    channels the last one counts, and it must be the final one. Tags inside a JSON object belong to its texts. Raises
    Unparsable for a reply that breaks off inside its thinking, and for a tag or channel after the start of an unclosed
    object: it may be part of the object's texts.
    """
    if any(hint in text for hint in _HINTS) and _TAG.search(text):
        return _Scanner(text).final_part()
    return _after_stripped_channels(text) if _STRIPPED_ANALYSIS.match(text) else text


def without_turn_tokens(text: str) -> str:
    """The text without the tokens that begin and end a turn (`<|im_start|>assistant`, `<|im_end|>`, `</s>`)."""
    if "<|" not in text and "</s>" not in text:
        return text
    return _TURN_END.sub("", _TURN_BEGIN.sub("", text))


def _after_stripped_channels(text: str) -> str:
    """The final channel of a reply in the harmony format whose special tokens were stripped."""
    _, *final = text.split(_STRIPPED_FINAL)
    if len(final) > 1:
        raise Unparsable("the reply holds two final channels in its thoughts: give exactly one")
    if not final:
        raise Unparsable(_NO_FINAL)
    return final[0]


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
                if self._in_unclosed_object and self._channel in ("", "final"):
                    what = "the end of thoughts" if mark["closed"] else "a channel"
                    raise Unparsable(f"{what} inside a JSON object that has no end: it may be part of its texts")
                self._in_unclosed_object = False
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
        stem = _stem(self._text[start : self._position])
        closing = next((c for c in _CLOSING.finditer(self._text, self._position) if _stem(c[0]) == stem), None)
        if closing is None:  # the end of another tag inside is not the end of this one
            raise Unparsable(_NO_FINAL)
        self._kept.append(self._text[self._start : start])
        self._start = self._position = closing.end()


def _stem(tag: str) -> str:
    """What a tag is about, in whatever spelling: `<thinking>` is closed by `</think>`."""
    stem = _STEM.search(tag)
    return stem[0].lower() if stem else ""
