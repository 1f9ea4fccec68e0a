"""Counts with a running countmill over HTTP. Standard library only, Python 3.9 or later.

    with countmill.Client("http://127.0.0.1:8080") as c:
        c.add("page:/home")                          # in memory, sent within 250 ms
        done = c.increment("orders", id="order-7")   # durable when it returns
        print(c.total("orders", after=done).total)   # contains the increment

The class of an error says whether the increments were counted, and whether a repeat is safe. The client
repeats a call itself, with the same key and body, while that is safe and there is time
(docs/reference/retries.md). A Client is safe for threads. Create it after a fork. Times are in seconds.
countmill.aio has the same client for asyncio.
"""
from __future__ import annotations

import http.client
import ipaddress
import json
import logging
import random
import re
import secrets
import socket
import ssl
import threading
import time as clock
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union
from urllib.parse import SplitResult, quote, urlencode, urlsplit

MAX_DELTA = 2**53 - 1
_MAX_COUNTERS = 7_500  # of one batch, which then has less than 8 MiB whatever the names are
_MAX_ANSWER = 16 << 20
_IDLE = 20.0  # a server or proxy soon closes a connection that is idle for longer
_SILENCE = 45.0  # the server sends a line of a watch every 15 s
_REFUSED = 30.0  # at most between two flushes of the background, while the token is refused or a proxy answers
_BEHIND = 5.0  # a caller of watch that is behind for longer gets a new connection
_PROBLEM = "urn:countmill:problem:"  # begins the type of every error of a server; any other is a proxy's
_BAD_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f]|^[ =]| $|^__.*__$", re.S)
_log = logging.getLogger("countmill")


class CountmillError(Exception):
    """Base of all errors of this module."""

    status = 0  # of HTTP; 0 if no answer came
    retry_after = 0.0
    problem: dict = {}  # the answer's members: type, detail, field, limit, index, line, ...
    key = ""  # of the call, for a repeat after OutcomeUnknownError: pass it to increment as key, to next as id
    increments: List[Tuple[str, int]] = []  # of add, which the client has given up; the class says if they counted
    _again = False  # a repeat may help
    _open = False  # the try was maybe counted

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message)
        vars(self).update(fields)

    @property
    def conflicts(self) -> List[dict]:
        """The increments that were not counted: [{"position": 0, "id": "order-7"}]."""
        return self.problem.get("conflicts", [])


class InvalidError(CountmillError, ValueError): """Nothing was counted. Correct the request first."""
class ConflictError(CountmillError): """Nothing was counted. The key came with another body before."""
class IDsReusedError(CountmillError): """All were counted but those in conflicts. Do not repeat any."""
class OverloadedError(CountmillError): """Nothing was counted. Repeat later."""
class UnavailableError(CountmillError): """Nothing was counted, or nothing can be read. Repeat later."""
class OutcomeUnknownError(CountmillError): """Maybe counted. Repeat only with the same id or key."""
class TotalOverflowError(CountmillError): """A total does not fit 64 bits."""
class ClosedError(CountmillError): """Nothing was counted. The client is closed."""
class DeniedError(CountmillError): """Nothing was done. The token is missing, or may not do this."""
class NotFoundError(CountmillError): """Nothing was done. There is no such thing, or the server's role does not serve it."""
class NotCountedYetError(CountmillError): """Increments of the receipt were not counted within wait. Ask again later."""
class ReceiptGoneError(CountmillError): """The receipt is beyond the deduplication window, or of another database."""
class IDExpiredError(CountmillError): """Nothing was given. The time of the request is before the deduplication window."""
class DeadLetteredError(CountmillError): """Increments of the receipt are in dead letters: problem has dead_letters and totals."""


_ERRORS = {  # by the problem's type, else by the status
    "id-reused": ConflictError, "other-count": ConflictError, "id-expired": IDExpiredError, "ids-reused": IDsReusedError, "overflow": TotalOverflowError, "outcome-unknown": OutcomeUnknownError,
    "not-counted-yet": NotCountedYetError, "not-serving": UnavailableError, 401: DeniedError, 403: DeniedError, 404: NotFoundError, 408: UnavailableError,
    410: ReceiptGoneError, 429: OverloadedError, 501: UnavailableError, 503: UnavailableError, 507: UnavailableError,
}
_REPEATED = (408, 429, 500, 502, 503, 504, 507)


@dataclass(frozen=True)
class Accepted:
    """Increments that are durable. Totals after it contain them."""

    receipt: str  # empty if the server counts before it answers
    counted_as_of: Optional[datetime]  # totals of this moment or a later one contain them; None if not known


@dataclass(frozen=True)
class Total:
    """A counter's total. Every commit until as_of is in it."""

    counter: str
    total: int
    as_of: datetime
    source: str  # cache or store
    shards: int
    exists: bool  # False for a counter that nobody has incremented
    rate: Optional[float]  # of watch(rates=True): the change a second; None until it is known


@dataclass(frozen=True)
class Row:
    """The sum of a counter's increments in one step of time."""

    time: datetime  # its beginning, in the zone of the query
    counter: str
    value: int
    partial: bool  # it is not over, or not wholly covered by the rule


@dataclass(frozen=True)
class SeriesRule:
    """The counters of a pattern keep a series: their sums over time."""

    pattern: str  # the name of a counter, or a prefix followed by *
    keep: str  # how long sums stay: 1m:6h,15m:400d keeps minutes for 6 hours and quarter hours for 400 days
    begin: datetime  # the first minute of a complete series
    ended: Optional[datetime]  # when it was removed; None for a rule in force


@dataclass(frozen=True)
class Rules:
    """The rules of the database, in the order in which they are tried."""

    version: int  # rises by 1 with each change of the settings
    series: List[SeriesRule]


@dataclass(frozen=True)
class JournalEntry:
    """The delta of one counter in one part: an increment, or several of one sender that were sent together."""

    key: str  # its place; keys compare as strings in the order of entries
    time: datetime
    counter: str
    delta: int
    part: str
    sender: str  # the name of a token; empty if it is not known


@dataclass(frozen=True)
class JournalPage:
    """Some entries of one counter, in ascending order of keys."""

    entries: List[JournalEntry]
    next: str  # the after of the next page; empty at the end. A page may be short although there is a next one
    previous: str  # the before of the page before this one, if before was given; empty at the beginning
    settled_until: datetime  # the journal is complete up to here; later entries are not shown yet


@dataclass(frozen=True)
class SequenceState:
    """A sequence's last value."""

    sequence: str
    last: int  # 0 if there was none
    exists: bool  # False if nobody has used the sequence since its delete, or ever


@dataclass(frozen=True)
class Index:
    """Puts counters into groups. A group is a counter whose name begins with =; its total is the sum of its counters."""

    name: str
    match: str  # the counters: page:{site}:*
    group: str  # the name of a counter's group without the =: site:{site}
    state: str  # building, serving or deleting; groups have totals while it is serving
    ranges: Optional[int]  # of the work; None if the token may not read all counters of the index
    ranges_done: Optional[int]
    checked_at: Optional[datetime]  # when it was last compared with the shards of its counters


@dataclass(frozen=True)
class Top:
    """The best counters of an index, the best first."""

    top: List[Tuple[str, int, int]]  # each with its total, or the sum of the window, and its place; equal totals share one
    complete_as_of: datetime  # all counters were looked at as of this moment; all totals and places are of it
    partial: bool  # the window began before the rule for its series, or no rule keeps a series of the overflow group
    overflowed: List[str]  # they have no place, because their totals do not fit 64 bits


@dataclass(frozen=True)
class Rank:
    """The place of a counter among those of an index."""

    counter: str
    total: int  # or the sum of the window
    rank: Optional[int]  # None if the counter does not exist, or has 0 in the window
    of: int  # how many were ordered
    complete_as_of: datetime
    partial: bool


@dataclass(frozen=True)
class Update:
    """The totals of a watch that have changed. If it is whole, all other totals are gone."""

    totals: List[Total]
    whole: bool  # these are all totals: the first update, and the first one after a break
    removed: List[str]  # no longer in the list: deleted, or beyond the limit
    truncated: bool  # more counters have the prefix than the limit
    lag: Optional[float]  # seconds: the age of the oldest uncommitted increment; None if unknown
    overflowed: List[str]  # their totals do not fit 64 bits, and are missing


@dataclass
class _Request:
    path: str
    body: bytes = b""
    content_type: str = "application/json"
    key: str = ""
    id: str = ""  # in the body, drawn for repeats
    maybe: float = 0.0  # when the first try was sent that was maybe counted
    increments: List[Tuple[str, int]] = field(default_factory=list)  # of a batch
    method: str = ""  # default: POST with a body, else GET
    write: bool = False  # it changes something


class Client:
    """Talks to one countmill, or to several behind one address."""

    def __init__(
        self,
        base: str,
        *,
        token: Union[str, Callable[[], str], None] = None,  # a new token must have the old one's name
        timeout: float = 30.0,  # of one call, repeats included
        flush_interval: float = 0.25,  # how long an added increment waits at most
        max_counters: int = _MAX_COUNTERS,  # held in memory, with those on their way; not more than this
        dedup_window: float = 8 * 86400.0,  # the server's --dedup-window: no repeats near its end
        on_error: Optional[Callable[[CountmillError], None]] = None,  # of the background; default: logs
        insecure: bool = False,  # lets a token go over plain HTTP to another machine
    ) -> None:
        u = _address(base)
        if min(timeout, flush_interval, dedup_window) <= 0 or not 0 < max_counters <= _MAX_COUNTERS:
            raise InvalidError(f"times must be above 0, and max_counters from 1 to {_MAX_COUNTERS}")
        if token is not None and not insecure and u.scheme == "http" and not _loopback(u.hostname):
            raise InvalidError(f"a token is not sent to {u.hostname} over plain http: use https, or insecure=True")
        if isinstance(token, str):
            token = _bearer(token)
        self._base, self._url, self._token, self._timeout, self._interval = base, u, token, timeout, flush_interval
        self._max_counters, self._repeat_for, self._on_error = max_counters, dedup_window * 7 / 8, on_error or _log_error
        self._sending = threading.Lock()  # held while a batch is sent
        self._lock = threading.Lock()  # of the fields below
        self._idle: List[Tuple[http.client.HTTPConnection, float]] = []  # since when
        self._watched: Set[socket.socket] = set()
        self._sums: Dict[str, int] = {}
        self._batch: Optional[_Request] = None  # drawn once, kept until its outcome is certain
        self._refused: Optional[CountmillError] = None  # of increments given up, which nobody was told yet; the sender's
        self._thread: Optional[threading.Thread] = None
        self._closed = threading.Event()

    def add(self, counter: str, delta: int = 1) -> None:
        """Adds in memory and returns at once. Increments of one counter become one.

        What the process has not flushed when it dies is lost: call close, or use "with". OverloadedError
        and ClosedError mean certainly not counted.
        """
        _line(counter, delta)
        with self._lock:
            self._check_open()
            new = self._sums.get(counter, 0) + delta
            if abs(new) > MAX_DELTA:
                raise OverloadedError(f"the unsent increments of {counter!r} exceed 2^53-1; flush, and add again")
            sent = self._batch.increments if self._batch else []
            if counter not in self._sums and len(self._sums) + len(sent) >= self._max_counters:
                raise OverloadedError(f"{self._max_counters} counters are unsent, the limit")
            self._sums[counter] = new
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="countmill", daemon=True)
                self._thread.start()

    def increment(self, counter: str, delta: int = 1, *, id: Optional[str] = None, key: Optional[str] = None,
                  time: Optional[datetime] = None, timeout: Optional[float] = None) -> Accepted:
        """Counts one increment, which is durable when this returns.

        After OutcomeUnknownError call it again with the same id, or with the key of the error: any other call may
        count twice.
        """
        self._check_open()
        if time is not None and time.tzinfo is None:
            raise InvalidError("time has no time zone (limit: an aware datetime)")
        more = {"id": id, "time": time and time.isoformat()}
        body = _line(counter, delta, **{k: v for k, v in more.items() if v is not None})
        if key is not None and not re.fullmatch("[ -~]{1,128}", key):
            raise InvalidError("key has other characters than ASCII, or another length (limit: 1 to 128 bytes)")
        request = _Request("/v1/increments", body, key=key or (secrets.token_hex(16) if id is None else ""), write=True)
        return self._call(request, self._deadline(timeout), lambda answer: _accepted(answer, 1))

    def next(self, sequence: str, *, id: Optional[str] = None, count: int = 1, time: Optional[datetime] = None,
             timeout: Optional[float] = None) -> range:
        """The next values of a sequence, count of them: a range, whose first value is next(...)[0].

        No value is given twice. With an id a repeat gets the same values; with the time of the first call too, a
        repeat after the deduplication window raises IDExpiredError. Without an id each call gets new values; the
        key of an OutcomeUnknownError is then the id for a repeat.
        """
        self._check_open()
        if time is not None and (time.tzinfo is None or id is None):
            raise InvalidError("time has no time zone, or comes without an id (limit: an aware datetime, with an id)")
        drawn = secrets.token_hex(16) if id is None else id
        body = {"sequence": sequence, "id": drawn, "count": count}
        if time is not None:
            body["time"] = time.isoformat()
        request = _Request("/v1/sequences/next", json.dumps(body).encode(), id=drawn, write=True)
        return self._call(request, self._deadline(timeout), lambda answer: _values(answer, count))

    def sequence(self, sequence: str, *, timeout: Optional[float] = None) -> SequenceState:
        """The last value of a sequence."""
        return self._call(_Request("/v1/sequences" + _query(sequence=sequence)), self._deadline(timeout), _sequence)

    def delete_sequence(self, sequence: str, *, timeout: Optional[float] = None) -> SequenceState:
        """Marks a sequence as deleted, and returns its state before. Its last value stays: none is given again.

        It is repeated after an unknown outcome; the state is then that after the delete.
        """
        request = _Request("/v1/sequences" + _query(sequence=sequence), method="DELETE", write=True)
        return self._call(request, self._deadline(timeout), _sequence)

    def indexes(self, *, timeout: Optional[float] = None) -> List[Index]:
        """The indexes, in the order of their names, with their progress."""
        return self._call(_Request("/v1/indexes"), self._deadline(timeout), _indexes)

    def create_index(self, name: str, match: str, group: str, *, timeout: Optional[float] = None) -> List[Index]:
        """Creates an index, and returns all. It may be repeated. The token needs the scope admin."""
        body = json.dumps({"name": name, "match": match, "group": group}).encode()
        return self._call(_Request("/v1/indexes", body, write=True), self._deadline(timeout), _indexes)

    def delete_index(self, name: str, *, timeout: Optional[float] = None) -> List[Index]:
        """Begins to delete an index and its groups, and returns all. It may be repeated until the index is gone."""
        request = _Request("/v1/indexes" + _query(name=name), method="DELETE", write=True)
        return self._call(request, self._deadline(timeout), _indexes)

    def top(self, index: str, n: int = 10, *, of: str = "counters", window: str = "", tz: str = "",
            timeout: Optional[float] = None) -> Top:
        """The n best counters of an index, 1 to 1,000, or with of="groups" its best groups.

        window orders by the increments of today, this-week or this-month in the time zone tz, or of the last 1h. It
        needs a rule for series: NotFoundError says so.
        """
        path = "/v1/top" + _query(index=index, n=n, of=of, window=window, tz=tz)
        return self._call(_Request(path), self._deadline(timeout), lambda a: Top(
            [(t["counter"], int(t["total"]), t["rank"]) for t in a["top"]], **_scan(a), overflowed=a.get("overflowed", [])))

    def rank(self, index: str, counter: str, *, window: str = "", tz: str = "", timeout: Optional[float] = None) -> Rank:
        """The place of a counter among those of an index. window and tz are those of top."""
        path = "/v1/rank" + _query(index=index, counter=counter, window=window, tz=tz)
        return self._call(_Request(path), self._deadline(timeout), lambda a: Rank(
            a["counter"], int(a["total"]), a["rank"], a["of"], **_scan(a)))

    def flush(self, timeout: Optional[float] = None) -> None:
        """Sends all that was added before. It is durable when this returns.

        After an error without increments the client keeps them, and goes on with the same key. After an error
        with increments it has given these up; the error's class says whether they were counted. Those that the token
        may not count are given up alone, and the error comes after the others are durable.
        """
        self._flush(self._deadline(timeout))

    def close(self, timeout: Optional[float] = None) -> None:
        """Refuses further increments, sends the rest and ends watches. Its error has all that was not sent.

        It may be repeated, to try again.
        """
        deadline = self._deadline(timeout)
        with self._lock:
            self._closed.set()
            for s in self._watched:
                _end(s)
        try:
            self._flush(deadline)
        except CountmillError as e:
            with self._lock:
                for kept in (self._refused, self._batch):
                    e.increments = e.increments + (kept.increments if kept else [])
                e.increments = e.increments + list(self._sums.items())
            raise
        finally:
            if self._thread not in (None, threading.current_thread()):
                self._thread.join(max(0.0, deadline - clock.monotonic()))
            self._close_idle()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def total(self, counter: str, **options: Any) -> Total:
        """One total. The options are those of totals."""
        return self.totals([counter], **options)[0]

    def totals(self, counters: Sequence[str], *, max_staleness: Optional[float] = None, min_as_of: Optional[datetime] = None,
               after: Union[Accepted, str, None] = None, wait: float = 2.0, timeout: Optional[float] = None) -> List[Total]:
        """Up to 1,000 totals, in the order asked. Those with source "store" are of one moment.

        max_staleness accepts older, cheaper ones; 0 reads the store. min_as_of accepts none of a moment before:
        pass the as_of of an earlier total, and a counter never goes back. after, an Accepted or a receipt, accepts
        none without these increments; the server waits for them for up to wait, 5 s at most.

        If totals do not fit 64 bits, the problem of TotalOverflowError has these counters as overflowed, and the other totals.
        """
        if isinstance(after, Accepted):
            min_as_of, after = max(filter(None, (min_as_of, after.counted_as_of)), default=None), after.receipt
        path = "/v1/totals" + _query(max_staleness=_duration(max_staleness), min_as_of=min_as_of and min_as_of.isoformat(),
                                     after=after, wait=_duration(wait) if after else None)
        body = json.dumps({"counters": list(counters)}).encode()
        got = self._call(_Request(path, body), self._deadline(timeout), lambda a: {**a, "totals": _totals(a), "overflowed": _overflowed(a)})
        if len(got["totals"]) + len(got["overflowed"]) != len(counters):
            raise UnavailableError("the answer has another number of totals than was asked for")
        if got["overflowed"]:
            raise TotalOverflowError(f"totals that do not fit 64 bits: {got['overflowed']}", problem=got)
        if got.get("dead_letters"):
            raise DeadLetteredError(f"increments of the receipt are in dead letters: {got['dead_letters']}", problem=got)
        return got["totals"]

    def list(self, prefix: str = "", *, timeout: Optional[float] = None) -> Iterator[Total]:
        """All counters whose names begin with prefix, in byte order, page by page. timeout is that of a page.

        If counters have no total because it does not fit 64 bits, TotalOverflowError names them at the end.
        """
        overflowed: List[str] = []
        page, token = None, ""
        while page is None or token:
            path = "/v1/counters" + _query(prefix=prefix, limit=1000, page_token=token)
            page = self._call(_Request(path), self._deadline(timeout), lambda a: {**a, "totals": _totals(a)})
            yield from page["totals"]
            overflowed += page.get("overflowed", [])
            token = page.get("next_page_token", "")
        if overflowed:
            raise TotalOverflowError("totals that do not fit 64 bits: " + ", ".join(map(repr, overflowed)))

    def series(self, counters: Sequence[str], *, step: str = "15m", tz: str = "", start: Optional[datetime] = None,
               end: Optional[datetime] = None, timeout: Optional[float] = None) -> List[Row]:
        """Rows by counter, in the order asked, and by time: at most 10,000. All are as of one moment.

        step is the length of a row (15m, 1d, 1w, 1mo and others), and tz the zone of days and longer steps. start is
        rounded down and end up to whole rows; the default is the last 24 hours.
        Each counter needs a rule (add_series): NotFoundError names one without.
        """
        for at in (start, end):
            if at is not None and at.tzinfo is None:
                raise InvalidError("start or end has no time zone (limit: an aware datetime)")
        path = "/v1/series" + _query(**{"counter": counters, "step": step, "tz": tz, "from": start and start.isoformat(), "to": end and end.isoformat()})
        return self._call(_Request(path), self._deadline(timeout), _rows)

    def rules(self, *, timeout: Optional[float] = None) -> Rules:
        """The rules for series."""
        return self._call(_Request("/v1/rules"), self._deadline(timeout), _rules)

    def add_series(self, pattern: str, keep: str, *, timeout: Optional[float] = None) -> Rules:
        """Makes the counters of a pattern keep a series, and returns all rules. It may be repeated.

        Increments from then on are in it: add the rule before the first one. The token needs the scope admin.
        """
        body = json.dumps({"pattern": pattern, "keep": keep}).encode()
        return self._call(_Request("/v1/rules/series", body, write=True), self._deadline(timeout), _rules)

    def remove_series(self, pattern: str, *, timeout: Optional[float] = None) -> Rules:
        """Ends the rule with the pattern. Its series stay for as long as it promised. It may be repeated."""
        request = _Request("/v1/rules/series" + _query(pattern=pattern), method="DELETE", write=True)
        return self._call(request, self._deadline(timeout), _rules)

    def journal(self, counter: str, *, id: Optional[str] = None, after: Optional[str] = None,
                timeout: Optional[float] = None) -> Iterator[JournalEntry]:
        """The increments of a counter under a rule for the journal, from the oldest on, page by page.

        after begins after the key of an entry: pass the last key that you have seen to follow the end. id selects
        the increment with that id. timeout is that of a page. The token needs the scope admin.
        """
        while True:
            page = self.journal_page(counter, id=id, after=after, limit=1000, timeout=timeout)
            yield from page.entries
            after = page.next
            if not after:
                return

    def journal_page(self, counter: str, *, id: Optional[str] = None, after: Optional[str] = None, before: Optional[str] = None,
                     limit: int = 50, timeout: Optional[float] = None) -> JournalPage:
        """Up to limit entries, at most 1,000: the oldest, those just after a key, or those just before a key.

        before="f" * 40 gives the newest. Pages of what existed at the first call never repeat and never skip an entry.
        """
        path = "/v1/journal" + _query(counter=counter, id=id, after=after, before=before, limit=limit)
        return self._call(_Request(path), self._deadline(timeout), lambda a: JournalPage(
            _entries(a), a.get("next", ""), a.get("previous", ""), _moment(a["settled_until"])))

    def watch(self, counters: Sequence[str] = (), *, prefix: Optional[str] = None, limit: Optional[int] = None, rates: bool = False,
              max_staleness: Optional[float] = None, timeout: Optional[float] = None) -> Iterator[Update]:
        """The totals of up to 100 counters, then those that change. It ends after timeout, or with close.

        With prefix instead of counters: the counters whose names begin with it, the first 100 or limit (up to
        1,000) of them. Broken connections are made again, and go to on_error. A caller that is 5 s behind gets a
        new connection, and so the newest totals. An error that a repeat cannot help is raised.
        """
        self._check_open()
        path = "/v1/watch" + _query(counter=counters, limit=limit, rates="true" if rates else None, max_staleness=_duration(max_staleness))
        if prefix is not None:  # it may be empty: all counters
            path += ("&" if "?" in path else "?") + "prefix=" + quote(prefix, safe="")
        tries, end = 0, float("inf") if timeout is None else clock.monotonic() + timeout
        while not self._closed.is_set() and clock.monotonic() < end:
            try:
                with closing(self._updates(_Request(path), end)) as updates:
                    for update in updates:
                        tries = 0
                        yield update
            except CountmillError as e:
                if self._closed.is_set() or clock.monotonic() >= end:
                    return
                if not e._again:
                    raise
                self._report(e)
                self._closed.wait(min(_pause(tries, e), end - clock.monotonic()))
                tries += 1

    def _updates(self, r: _Request, end: float) -> Iterator[Update]:
        """The updates of one connection, until it breaks or the caller is behind."""
        name = data = ""
        whole = True
        with self._sent(r, min(end, clock.monotonic() + _SILENCE), watch=True) as (sock, res):
            waited = clock.monotonic()
            while not self._closed.is_set():
                began = clock.monotonic()
                sock.settimeout(_left(min(end, began + _SILENCE)))
                line = res.readline(_MAX_ANSWER).decode()
                if not line.endswith("\n"):
                    raise http.client.HTTPException("the server ended the stream")
                if clock.monotonic() - began > 0.01:  # nothing was there to read
                    waited = clock.monotonic()
                elif clock.monotonic() - waited > _BEHIND:
                    return
                what, _, value = line.rstrip("\r\n").partition(":")
                if what == "event":
                    name = value.strip()
                elif what == "data":
                    data += value
                elif not what and not value and data:
                    got = json.loads(data)
                    if name == "problem":
                        self._report(_problem(got["status"], data.encode(), ""))
                    else:
                        yield Update(_totals(got), whole, got.get("removed", []), "truncated" in got, got.get("lag"), _overflowed(got))
                        whole = False
                    data = ""

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ClosedError("the client is closed")

    def _deadline(self, timeout: Optional[float]) -> float:
        return clock.monotonic() + (self._timeout if timeout is None else timeout)

    def _run(self) -> None:
        wait = self._interval
        while not self._closed.wait(wait):
            try:
                self._flush(self._deadline(None), self._closed)
                wait = self._interval
            except CountmillError as e:
                refused = e.status == 401 or e._open and not e._again
                wait = max(self._interval, min(2 * wait, _REFUSED)) if refused else self._interval
                self._report(e)

    def _report(self, e: CountmillError) -> None:
        try:
            self._on_error(e)
        except Exception:
            _log.exception("on_error raised")

    def _flush(self, deadline: float, cancel: Optional[threading.Event] = None) -> None:
        if not self._sending.acquire(timeout=max(0.0, deadline - clock.monotonic())):
            raise OutcomeUnknownError("another flush has not ended in time; the client keeps the increments")
        try:
            for _ in range(1 + (self._batch is not None)):  # an earlier batch, and then the rest
                self._send_batch(deadline, cancel)
            refused, self._refused = self._refused, None
            if refused:
                raise refused
        finally:
            self._sending.release()

    def _send_batch(self, deadline: float, cancel: Optional[threading.Event]) -> None:
        with self._lock:
            if self._batch is None:
                adds, self._sums = list(self._sums.items()), {}
                self._batch = _batch(adds)
        while self._batch and not (cancel and cancel.is_set()):
            batch, rest = self._batch, None
            try:
                self._call(batch, deadline, lambda answer: _accepted(answer, len(batch.increments)), cancel)
            except CountmillError as e:
                if e._again or e._open or e.status == 401:  # a token that expired is soon another
                    raise
                gone, others = _refused(e, batch.increments)
                if not gone:
                    e.increments = [] if isinstance(e, IDsReusedError) else batch.increments
                    with self._lock:
                        self._batch = None
                    raise
                e.increments = (self._refused.increments if self._refused else []) + gone
                self._refused, rest = e, _batch(others)
            with self._lock:
                self._batch = rest

    def _call(self, r: _Request, deadline: float, decode: Callable[[Any], Any], cancel: Optional[threading.Event] = None) -> Any:
        """Sends r until it is answered. Every request of this client may be repeated."""
        tries, half = 0, (deadline - clock.monotonic()) / 2  # a try that hangs leaves time for another
        while True:
            # A try may have waited while the machine was suspended.
            if r.write and r.maybe and clock.time() - r.maybe > self._repeat_for:
                raise OutcomeUnknownError("maybe counted, so long ago that the server may not recognise a repeat", key=r.key or r.id)
            before, r.maybe = r.maybe, r.maybe or clock.time()  # until the outcome is known
            try:
                end = min(deadline, clock.monotonic() + half)
                with self._sent(r, end) as (sock, res):
                    return decode(json.loads(_read(sock, res, end)))
            except CountmillError as e:
                e.key = r.key or r.id
                if not e._open:
                    r.maybe = before
                wait = _pause(tries, e)
                if not e._again or clock.monotonic() + wait > deadline or (cancel or threading.Event()).wait(wait):
                    raise _conclude(r, e) from e.__cause__
            tries += 1

    @contextmanager
    def _sent(self, r: _Request, deadline: float, watch: bool = False) -> Iterator[Tuple[socket.socket, http.client.HTTPResponse]]:
        """Sends r once and yields a 2xx answer. Whatever breaks, here or in the caller's block, is one error."""
        headers = self._headers(r)
        try:
            conn = self._connect(_left(deadline))
        except OSError as e:
            if isinstance(e, ssl.SSLCertVerificationError) or getattr(e, "reason", "") == "WRONG_VERSION_NUMBER":
                raise InvalidError(f"{self._base} is not trusted, or answers without TLS: {e}") from e
            raise UnavailableError(f"nothing answers at {self._base}: {e}", _again=True) from e
        sock, keep = conn.sock, False
        res: Optional[http.client.HTTPResponse] = None
        try:
            if watch:
                with self._lock:
                    self._watched.add(sock)
                self._check_open()
            sock.settimeout(_left(deadline))
            conn.request(r.method or ("POST" if r.body else "GET"), self._url.path.rstrip("/") + r.path, r.body or None, headers)
            res = conn.getresponse()
            if not 200 <= res.status <= 299:
                raise _problem(res.status, _read(sock, res, deadline), res.headers.get("Retry-After", ""))
            yield sock, res
            keep = bool(conn.sock) and res.isclosed() and len(self._idle) < 32 and not self._closed.is_set()
        except (OSError, http.client.HTTPException, LookupError, TypeError, AttributeError, ValueError) as e:
            if isinstance(e, CountmillError):
                raise
            self._close_idle()  # the server of the others is gone too
            raise OutcomeUnknownError(f"no answer came from {self._base}: {e!r}", _again=True, _open=True) from e
        finally:
            with self._lock:
                self._watched.discard(sock)
            if keep:
                self._idle.append((conn, clock.monotonic()))
            else:
                for each in (res, conn, sock):
                    if each is not None:
                        each.close()

    def _headers(self, r: _Request) -> dict:
        headers = {"Content-Type": r.content_type} if r.body else {}
        if r.key:
            headers["Idempotency-Key"] = r.key
        try:
            token = _bearer(self._token() or "") if callable(self._token) else self._token
        except Exception as e:
            raise DeniedError(f"the token source: {e}", status=401) from e
        return {**headers, "Authorization": "Bearer " + token} if token else headers

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        with suppress(IndexError):  # none is left
            while True:
                conn, since = self._idle.pop()
                if clock.monotonic() - since < _IDLE:
                    return conn
                conn.close()
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        conn = kind(self._url.hostname, self._url.port, timeout=min(timeout, 5.0))
        conn.connect()
        return conn

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop()[0].close()


def _read(sock: socket.socket, res: http.client.HTTPResponse, deadline: float) -> bytes:
    text = more = b" "
    while more and not res.isclosed():
        sock.settimeout(_left(deadline))
        more = res.read1(1 << 16)
        text += more
        if len(text) > _MAX_ANSWER:
            raise http.client.HTTPException(f"an answer of more than {_MAX_ANSWER} bytes")
    if res.length == 0:
        res.close()  # Python does not do it before 3.12
    return text


def _log_error(e: CountmillError) -> None:
    _log.error(f"{e}; increments given up: {e.increments}" if e.increments else str(e))


def _end(s: socket.socket) -> None:
    with suppress(OSError):  # it has ended
        s.shutdown(socket.SHUT_RDWR)  # ends a read that waits


def _left(deadline: float) -> float:
    left = deadline - clock.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _pause(tries: int, e: CountmillError) -> float:
    return max(min(0.1 * 2 ** min(tries, 10), 5.0) * random.uniform(0.5, 1.0), e.retry_after)


def _conclude(r: _Request, e: CountmillError) -> CountmillError:
    """The error that the caller gets after the last try."""
    if not r.write and isinstance(e, OutcomeUnknownError):
        return UnavailableError(f"nothing was read: {e}", **vars(e))
    if r.write and r.maybe and not isinstance(e, (OutcomeUnknownError, ConflictError, IDsReusedError)):
        return OutcomeUnknownError(f"an earlier try was maybe counted; then: {e}", **vars(e))
    return e


def _problem(status: int, text: bytes, retry_after: str) -> CountmillError:
    try:
        problem = dict(json.loads(text))
    except (ValueError, TypeError):
        problem = {}  # another program's error need not be JSON
    name = str(problem.get("type", ""))
    kind = name[len(_PROBLEM):] if name.startswith(_PROBLEM) else ""
    detail = problem.get("detail") or problem.get("title") or ""
    if kind:
        cls = _ERRORS.get(kind) or _ERRORS.get(status) or (OutcomeUnknownError if status >= 500 else InvalidError)
    else:  # it may answer after the server has counted
        cls, kind, detail = OutcomeUnknownError, "", f"another program answers, a proxy or no countmill: {detail}".rstrip(": ")
    return cls(f"{detail} (HTTP {status})", status=status, problem=problem, retry_after=float(retry_after) if retry_after.isdecimal() else 0.0,
               _again=kind != "overflow" and status in _REPEATED, _open=cls is OutcomeUnknownError)


def _refused(e: CountmillError, adds: List[Tuple[str, int]]) -> Tuple[List[Tuple[str, int]], List[Tuple[str, int]]]:
    """The increments of a batch that the token may not count, and the others."""
    lines = e.problem.get("lines") if isinstance(e, DeniedError) else None
    bad = {n for n in lines if isinstance(n, int)} if isinstance(lines, list) else set()
    return [x for n, x in enumerate(adds, 1) if n in bad], [x for n, x in enumerate(adds, 1) if n not in bad]


def _batch(adds: List[Tuple[str, int]]) -> Optional[_Request]:
    adds = [(c, d) for c, d in adds if d]
    body = b"".join(_line(c, d) + b"\n" for c, d in adds)
    return _Request("/v1/increments", body, "application/x-ndjson", secrets.token_hex(16), increments=adds, write=True) if adds else None


def _line(counter: str, delta: int, **more: Any) -> bytes:
    """An increment as JSON. What the server would refuse is refused here, so that it cannot spoil a batch."""
    try:
        size = len(counter.encode())
    except (UnicodeEncodeError, AttributeError):
        raise InvalidError("counter is not a string of valid Unicode") from None
    if not 1 <= size <= 500 or _BAD_NAME.search(counter):
        raise InvalidError(f"counter {counter!r:.99} is not allowed (limit: 1 to 500 bytes, no control characters, no space at an end, no = at the beginning, not __x__)")
    if not isinstance(delta, int) or delta == 0 or abs(delta) > MAX_DELTA:
        raise InvalidError(f"delta is {delta!r} (limit: an integer from -(2^53-1) to 2^53-1, not 0)")
    return json.dumps({"counter": counter, "delta": int(delta), **more}, ensure_ascii=False).encode("utf-8", "replace")


def _accepted(answer: dict, sent: int) -> Accepted:
    if answer["accepted"] != sent:  # something else has answered, and increments may be lost
        raise ValueError(f"{answer['accepted']} increments accepted of {sent}")
    at = answer.get("counted_as_of")
    return Accepted(answer.get("receipt", ""), _moment(at) if at else None)


def _values(answer: dict, count: int) -> range:
    values = range(answer["first"], answer["last"] + 1)
    if len(values) != count or values[0] < 1:
        raise ValueError(f"the values {values} for a count of {count}")
    return values


def _totals(answer: dict) -> List[Total]:
    return [Total(t["counter"], int(t["total"]), _moment(t["as_of"]), t["source"], t["shards"], t["exists"], t.get("rate"))
            for t in answer["totals"] if "error" not in t]


def _overflowed(answer: dict) -> List[str]:
    """The counters that have no total, because it does not fit 64 bits."""
    return [t["counter"] for t in answer["totals"] if "error" in t]


def _rows(answer: list) -> List[Row]:
    return [Row(_moment(r["time"]), r["counter"], int(r["value"]), r["partial"]) for r in answer]


def _rules(answer: dict) -> Rules:
    return Rules(answer["version"], [SeriesRule(r["pattern"], r["keep"], _moment(r["begin"]), _maybe_moment(r.get("ended"))) for r in answer["series"]])


def _entries(answer: dict) -> List[JournalEntry]:
    return [JournalEntry(e["key"], _moment(e["time"]), e["counter"], int(e["delta"]), e["part"], e.get("sender", ""))
            for e in answer["entries"]]


def _sequence(answer: dict) -> SequenceState:
    return SequenceState(answer["sequence"], answer["last"], answer["exists"])


def _indexes(answer: dict) -> List[Index]:
    return [Index(x["name"], x["match"], x["group"], x["state"], x["ranges"], x["ranges_done"], _maybe_moment(x["checked_at"]))
            for x in answer["indexes"]]


def _scan(answer: dict) -> dict:
    return {"complete_as_of": _moment(answer["complete_as_of"]), "partial": answer["partial"]}


def _maybe_moment(text: Optional[str]) -> Optional[datetime]:
    return _moment(text) if text else None


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _query(**parameters: Any) -> str:
    given = {k: v for k, v in parameters.items() if v not in (None, "")}
    return "?" + urlencode(given, doseq=True, quote_via=quote) if given else ""


def _duration(seconds: Optional[float]) -> Optional[str]:
    return None if seconds is None else f"{seconds:.6f}s"


def _address(base: str) -> SplitResult:
    with suppress(ValueError):  # of a port, or a name that no connection can be made to
        u = urlsplit(base)
        (u.hostname or "").encode("idna")
        if (u.scheme in ("http", "https") and u.hostname and u.port != 0 and not u.query and not u.fragment
                and u.username is None and not re.search(r"[\x00-\x20\x7f]", base) and u.path.isascii()):
            return u
    raise InvalidError(f"the address must be http://HOST:PORT or https://HOST:PORT, got {base!r}")


def _bearer(token: str) -> str:
    """A token without the newline of its file. A token is ASCII without spaces."""
    token = token.strip()
    if re.search("[^!-~]", token):
        raise InvalidError("the token has a space, or characters that no token has")
    return token


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
