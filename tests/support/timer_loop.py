"""An event loop on a virtual clock: where nothing is ready, it jumps to the next timer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class TimerLoop(asyncio.SelectorEventLoop):
    """Nothing but timers and futures: no sockets, no threads."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._selector.select = self._jump  # type: ignore[attr-defined, method-assign]

    def time(self) -> float:
        return self.now

    def _jump(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("every task waits, and no timer is set")
        self.now += max(timeout, 0.0)
        return []

    def run_for(self, work: Coroutine[Any, Any, None], seconds: float, on_end: Callable[[], None]) -> bool:
        """Run until the work is done or the time is over; whether it was done. Where it was not, `on_end` is called at that
        moment, and then everything is cancelled."""
        task = self.create_task(work)
        timer = self.call_later(seconds, self.stop)

        def stop(_: object) -> None:
            self.stop()

        task.add_done_callback(stop)
        self.run_forever()
        task.remove_done_callback(stop)
        timer.cancel()
        if task.done():
            task.result()
            return True
        on_end()
        left = asyncio.all_tasks(self)
        for unfinished in left:
            unfinished.cancel()
        self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        return False
