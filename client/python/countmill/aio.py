"""The client for asyncio: the calls of countmill.Client, to await.

    async with aio.Client("http://127.0.0.1:8080") as c:
        c.add("page:/home")                                # in memory, sent within 250 ms
        done = await c.increment("orders", id="order-7")   # durable when it returns
        print((await c.total("orders", after=done)).total)
        async for update in c.watch(["orders"]):
            ...

Arguments, answers and errors are those of countmill.Client, which makes the calls in a few threads. A task that is
cancelled ends at once, and its call goes on: it maybe counts, so repeat it only with the same id or key. on_error is
called in a thread.
"""
from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, AsyncIterator, Callable, Iterator, List, Optional, Sequence, Set

import countmill
from countmill import (
    Accepted, ClosedError, Index, JournalEntry, JournalPage, Rank, Row, Rules, SequenceState, Top, Total, Update)


class Client:
    """Talks to one countmill, or to several behind one address. The options are those of countmill.Client."""

    def __init__(self, base: str, *, threads: int = 8, **options: Any) -> None:
        self._make = partial(countmill.Client, base, **options)
        self._client = self._make()
        self._threads = ThreadPoolExecutor(threads, "countmill")  # the calls at once; others wait
        self._watches: Set[countmill.Client] = set()
        self._closed = False

    def add(self, counter: str, delta: int = 1) -> None:
        """Adds in memory and returns at once."""
        self._client.add(counter, delta)

    async def increment(self, counter: str, delta: int = 1, **options: Any) -> Accepted:
        return await self._call(self._client.increment, counter, delta, **options)

    async def flush(self, timeout: Optional[float] = None) -> None:
        await self._call(self._client.flush, timeout)

    async def close(self, timeout: Optional[float] = None) -> None:
        self._closed = True
        for watch in self._watches.copy():
            watch.close()
        await self._call(self._client.close, timeout)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def total(self, counter: str, **options: Any) -> Total:
        return await self._call(self._client.total, counter, **options)

    async def totals(self, counters: Sequence[str], **options: Any) -> List[Total]:
        return await self._call(self._client.totals, counters, **options)

    def list(self, prefix: str = "", **options: Any) -> AsyncIterator[Total]:
        return self._pages(self._client.list(prefix, **options))

    def journal(self, counter: str, **options: Any) -> AsyncIterator[JournalEntry]:
        return self._pages(self._client.journal(counter, **options))

    async def journal_page(self, counter: str, **options: Any) -> JournalPage:
        return await self._call(self._client.journal_page, counter, **options)

    async def series(self, counters: Sequence[str], **options: Any) -> List[Row]:
        return await self._call(self._client.series, counters, **options)

    async def rules(self, **options: Any) -> Rules:
        return await self._call(self._client.rules, **options)

    async def add_series(self, pattern: str, keep: str, **options: Any) -> Rules:
        return await self._call(self._client.add_series, pattern, keep, **options)

    async def remove_series(self, pattern: str, **options: Any) -> Rules:
        return await self._call(self._client.remove_series, pattern, **options)

    async def next(self, sequence: str, **options: Any) -> range:
        return await self._call(self._client.next, sequence, **options)

    async def sequence(self, sequence: str, **options: Any) -> SequenceState:
        return await self._call(self._client.sequence, sequence, **options)

    async def delete_sequence(self, sequence: str, **options: Any) -> SequenceState:
        return await self._call(self._client.delete_sequence, sequence, **options)

    async def indexes(self, **options: Any) -> List[Index]:
        return await self._call(self._client.indexes, **options)

    async def create_index(self, name: str, match: str, group: str, **options: Any) -> List[Index]:
        return await self._call(self._client.create_index, name, match, group, **options)

    async def delete_index(self, name: str, **options: Any) -> List[Index]:
        return await self._call(self._client.delete_index, name, **options)

    async def top(self, index: str, n: int = 10, **options: Any) -> Top:
        return await self._call(self._client.top, index, n, **options)

    async def rank(self, index: str, counter: str, **options: Any) -> Rank:
        return await self._call(self._client.rank, index, counter, **options)

    async def watch(self, counters: Sequence[str] = (), **options: Any) -> AsyncIterator[Update]:
        if self._closed:
            raise ClosedError("the client is closed")
        # A client of its own, because a watch ends by closing it: its thread waits for the server.
        watching, thread = self._make(), ThreadPoolExecutor(1, "countmill-watch")
        updates = watching.watch(counters, **options)
        self._watches.add(watching)
        try:
            while True:
                update = await asyncio.get_running_loop().run_in_executor(thread, next, updates, None)
                if update is None:
                    return
                yield update
        finally:
            self._watches.discard(watching)
            watching.close()
            thread.shutdown(wait=False)

    async def _call(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args, **options))

    async def _pages(self, items: Iterator[Any]) -> AsyncIterator[Any]:
        while True:
            page: List[Any] = []
            failed = None
            try:
                await self._call(lambda: page.extend(islice(items, 1000)))
            except countmill.CountmillError as e:  # after the items before it
                failed = e
            for item in page:
                yield item
            if failed is not None:
                raise failed
            if not page:
                return
