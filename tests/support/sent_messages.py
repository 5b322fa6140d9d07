"""Messages between a driver and its workers, as the other side reads them."""

from __future__ import annotations

import json
from typing import Any

from ragpipe.engine.workers.plain_messages import HEAD


def sent(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The JSON object of a message, and the bytes behind it."""
    size, _ = HEAD.unpack(data[: HEAD.size])
    end = HEAD.size + size
    return json.loads(data[HEAD.size : end]), data[end:]
