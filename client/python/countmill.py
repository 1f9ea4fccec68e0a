"""Counts with a running countmill over HTTP. One file, standard library only, Python 3.9 or later.

    with countmill.Client("http://127.0.0.1:8080") as c:
        c.add("page:/home")                        # in memory, sent within 250 ms
        c.increment("orders", id="order-7")        # durable when it returns
        print(c.total("orders").total)

The class of an error says whether the increments were counted, and whether a repeat is safe. The client
repeats a call itself, with the same key and body, while that is safe and there is time
(docs/reference/retries.md). A Client is safe for threads. Create it after a fork. Times are in seconds.
"""
from __future__ import annotations

import http.client
import ipaddress
import json
import logging
import random
import secrets
import socket
import threading
import time as clock
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, Union
from urllib.parse import quote, urlencode, urlsplit

MAX_DELTA = 2**53 - 1
_MAX_COUNTERS = 7_500  # of one batch, which then has less than 8 MiB whatever the names are
_MAX_ANSWER = 16 << 20
_IDLE = 20.0  # a server or proxy soon closes a connection that is idle for longer
_SILENCE = 45.0  # the server sends a line of a watch every 15 s
_log = logging.getLogger("countmill")


class CountmillError(Exception):
    """Base of all errors of this module."""

    status = 0  # of HTTP; 0 if no answer came
    retry_after = 0.0
    problem: dict = {}  # the answer's members: type, detail, field, limit, index, line, ...
    increments: List[Tuple[str, int]] = []  # of add, which the client has given up; the class says if they counted
    _again = False  # a repeat may help
    _open = False  # the try was maybe counted

    @property
    def conflicts(self) -> List[dict]:
        """The increments that were not counted: [{"position": 0, "id": "order-7"}]."""
        return self.problem.get("conflicts", [])


class InvalidError(CountmillError, ValueError): """Nothing was counted. Correct the request first."""
class ConflictError(CountmillError): """Nothing was counted. The key came with another body before."""
class IDsReusedError(CountmillError): """All were counted but those in conflicts. Do not repeat any."""
class OverloadedError(CountmillError): """Nothing was counted. Repeat later."""
class UnavailableError(CountmillError): """Nothing was counted, or no total can be given. Repeat later."""
class OutcomeUnknownError(CountmillError): """Maybe counted. Repeat only with the same id."""
class TotalOverflowError(CountmillError): """A total does not fit 64 bits."""
class ClosedError(CountmillError): """Nothing was counted. The client is closed."""
class DeniedError(CountmillError): """Nothing was done. The token is missing, or may not do this."""
class NotFoundError(CountmillError): """Nothing was done. There is no such thing, or the server's role does not serve it."""


_ERRORS = {  # by the problem's type, else by the status
    "id-reused": ConflictError, "ids-reused": IDsReusedError, "overflow": TotalOverflowError,
    "outcome-unknown": OutcomeUnknownError, 401: DeniedError, 403: DeniedError, 404: NotFoundError, 408: UnavailableError,
    429: OverloadedError, 501: UnavailableError, 503: UnavailableError, 507: UnavailableError,
}
_REPEATED = (408, 429, 500, 502, 503, 504, 507)


@dataclass(frozen=True)
class Total:
    """A counter's total. Every commit until as_of is in it."""

    counter: str
    total: int
    as_of: datetime
    source: str  # cache or store
    shards: int
    exists: bool  # False for a counter that nobody has incremented
    rate: Optional[float] = None  # of watch(rates=True): the change a second; None until it is known


@dataclass(frozen=True)
class Update:
    """The difference to the update before it. The first one has all totals."""

    totals: List[Total]  # that have changed; empty if only the rest has
    lag: Optional[float]  # seconds: the age of the oldest uncommitted increment; None if unknown
    removed: List[str] = field(default_factory=lambda: [])  # no longer in the list: deleted, or beyond the limit
    truncated: bool = False  # more counters have the prefix than the limit


@dataclass
class _Request:
    method: str
    path: str
    body: bytes = b""
    content_type: str = "application/json"
    key: str = ""
    maybe: float = 0.0  # when the first try was sent that was maybe counted
    increments: List[Tuple[str, int]] = field(default_factory=list)  # of a batch

    @property
    def read(self) -> bool:
        return self.path != "/v1/increments"


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
        u = urlsplit(base)
        if u.scheme not in ("http", "https") or not u.hostname or u.query or u.fragment or u.username is not None:
            raise InvalidError(f"the address must be http://HOST:PORT or https://HOST:PORT, got {base!r}")
        if min(timeout, flush_interval, dedup_window) <= 0 or not 0 < max_counters <= _MAX_COUNTERS:
            raise InvalidError(f"times must be above 0, and max_counters from 1 to {_MAX_COUNTERS}")
        if token is not None and not insecure and u.scheme == "http" and not _loopback(u.hostname):
            raise InvalidError(f"a token is not sent to {u.hostname} over plain http: use https, or insecure=True")
        self._url, self._token, self._timeout, self._interval = u, token, timeout, flush_interval
        self._max_counters, self._repeat_for, self._on_error = max_counters, dedup_window * 7 / 8, on_error
        self._idle: List[Tuple[http.client.HTTPConnection, float]] = []  # since when
        self._sending = threading.Lock()  # held while a batch is sent
        self._lock = threading.Lock()  # of the fields below
        self._sums: dict = {}  # by counter
        self._batch: Optional[_Request] = None  # drawn once, kept until its outcome is certain
        self._thread: Optional[threading.Thread] = None
        self._watches: List[_Watch] = []
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

    def increment(self, counter: str, delta: int = 1, *, id: Optional[str] = None,
                  time: Optional[datetime] = None, timeout: Optional[float] = None) -> None:
        """Counts one increment, which is durable when this returns.

        After OutcomeUnknownError call it again with the same id. Without an id a second call may count twice.
        """
        self._check_open()
        if time is not None and time.tzinfo is None:
            raise InvalidError("time has no time zone (limit: an aware datetime)")
        more = {"id": id, "time": time and time.isoformat()}
        body = _line(counter, delta, **{k: v for k, v in more.items() if v is not None})
        key = secrets.token_hex(16) if id is None else ""
        self._call(_Request("POST", "/v1/increments", body, key=key), self._deadline(timeout), lambda a: a["accepted"])

    def flush(self, timeout: Optional[float] = None) -> None:
        """Sends all that was added before. It is durable when this returns.

        After an error without increments the client keeps them, and goes on with the same key. After an error
        with increments it has given them up; the error's class says whether they were counted.
        """
        self._flush(self._deadline(timeout))

    def close(self, timeout: Optional[float] = None) -> None:
        """Refuses further increments, sends the rest and ends watches. Its error has all that was not sent.

        It may be repeated, to try again.
        """
        deadline = self._deadline(timeout)
        with self._lock:
            self._closed.set()
            watches, thread = self._watches[:], self._thread
        for w in watches:
            w.close(deadline - clock.monotonic())
        try:
            self._flush(deadline)
        except CountmillError as e:
            with self._lock:
                e.increments = e.increments + (self._batch.increments if self._batch else []) + list(self._sums.items())
            raise
        finally:
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - clock.monotonic()))
            self._close_idle()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def total(self, counter: str, *, max_staleness: Optional[float] = None, timeout: Optional[float] = None) -> Total:
        """One total. max_staleness accepts an older, cheaper one; 0 reads the store."""
        return self.totals([counter], max_staleness=max_staleness, timeout=timeout)[0]

    def totals(self, counters: Sequence[str], *, max_staleness: Optional[float] = None,
               timeout: Optional[float] = None) -> List[Total]:
        """Up to 1,000 totals, in the order asked. Those with source "store" are of one moment."""
        path = "/v1/totals" + _query(max_staleness=_duration(max_staleness))
        body = json.dumps({"counters": list(counters)}).encode()
        got = self._call(_Request("POST", path, body), self._deadline(timeout), _totals)
        if len(got) != len(counters):
            raise UnavailableError("the answer has another number of totals than was asked for")
        return got

    def list(self, prefix: str = "", *, timeout: Optional[float] = None) -> Iterator[Total]:
        """All counters whose names begin with prefix, in byte order, page by page. timeout is that of a page.

        If counters have no total because it does not fit 64 bits, TotalOverflowError names them at the end.
        """
        overflowed: List[str] = []
        page, token = None, ""
        while page is None or token:
            path = "/v1/counters" + _query(prefix=prefix, limit=1000, page_token=token)
            totals, page = self._call(_Request("GET", path), self._deadline(timeout), lambda a: (_totals(a), a))
            yield from totals
            overflowed += page.get("overflowed", [])
            token = page.get("next_page_token", "")
        if overflowed:
            raise TotalOverflowError("totals that do not fit 64 bits: " + ", ".join(map(repr, overflowed)))

    def watch(self, counters: Sequence[str] = (), *, prefix: Optional[str] = None, limit: Optional[int] = None,
              rates: bool = False, max_staleness: Optional[float] = None,
              timeout: Optional[float] = None) -> Iterator[Update]:
        """The totals of up to 100 counters, then those that change. It ends after timeout, or with close.

        With prefix instead of counters: the counters whose names begin with it, the first 100 or limit (up to
        1,000) of them. A slow caller gets the newest total of each changed counter, not every update. Broken
        connections are made again, and go to on_error. An error that a repeat cannot help is raised.
        """
        path = "/v1/watch" + _query(counter=counters, limit=limit, rates="true" if rates else None,
                                    max_staleness=_duration(max_staleness))
        if prefix is not None:  # it may be empty: all counters
            path += ("&" if "?" in path else "?") + "prefix=" + quote(prefix, safe="")
        w = _Watch(self, path)
        try:
            yield from w.updates(None if timeout is None else clock.monotonic() + timeout)
        finally:
            w.close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ClosedError("the client is closed")

    def _deadline(self, timeout: Optional[float]) -> float:
        return clock.monotonic() + (self._timeout if timeout is None else timeout)

    def _run(self) -> None:
        while not self._closed.wait(self._interval):
            try:
                self._flush(self._deadline(None), self._closed)
            except CountmillError as e:
                self._report(e)

    def _report(self, e: CountmillError) -> None:
        try:
            if self._on_error:
                return self._on_error(e)
            _log.error("%s; increments given up: %s", e, e.increments)
        except Exception:
            _log.exception("on_error raised")

    def _flush(self, deadline: float, cancel: Optional[threading.Event] = None) -> None:
        if not self._sending.acquire(timeout=max(0.0, deadline - clock.monotonic())):
            raise OutcomeUnknownError("another flush has not ended in time; the client keeps the increments")
        try:
            for _ in range(1 + (self._batch is not None)):  # an earlier batch, and then the rest
                self._send_batch(deadline, cancel)
        finally:
            self._sending.release()

    def _send_batch(self, deadline: float, cancel: Optional[threading.Event]) -> None:
        with self._lock:
            if self._batch is None:
                adds, self._sums = [(c, d) for c, d in self._sums.items() if d], {}
                if not adds:
                    return
                body = b"".join(_line(c, d) + b"\n" for c, d in adds)
                self._batch = _Request("POST", "/v1/increments", body, "application/x-ndjson", secrets.token_hex(16), increments=adds)
            batch = self._batch
        try:
            if batch.maybe and clock.time() - batch.maybe > self._repeat_for:
                raise OutcomeUnknownError("maybe counted, so long ago that the server may not recognise a repeat")
            self._call(batch, deadline, lambda a: a["accepted"], cancel)
        except CountmillError as e:
            if e._again or e.status == 401:  # a token that expired is soon another
                raise
            if not isinstance(e, IDsReusedError):
                e.increments = batch.increments
            self._drop()
            raise
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            self._batch = None

    def _call(self, r: _Request, deadline: float, decode: Callable[[Any], Any], cancel: Optional[threading.Event] = None) -> Any:
        """Sends r until it is answered. Every request of this client may be repeated."""
        tries, half = 0, (deadline - clock.monotonic()) / 2  # a try that hangs leaves time for another
        while True:
            before, r.maybe = r.maybe, r.maybe or clock.time()  # until the outcome is known
            try:
                with self._sent(r, min(deadline, clock.monotonic() + half)) as sent:
                    return decode(json.loads(sent.read()))
            except CountmillError as e:
                if not e._open:
                    r.maybe = before
                wait = _pause(tries, e)
                if not e._again or clock.monotonic() + wait > deadline or (cancel or threading.Event()).wait(wait):
                    raise _conclude(r, e)
            tries += 1

    @contextmanager
    def _sent(self, r: _Request, deadline: float) -> Iterator[_Sent]:
        """Sends r once and yields a 2xx answer. Whatever breaks, here or in the caller's block, is one error."""
        headers = self._headers(r)
        try:
            conn = self._connect(_left(deadline))
        except OSError as e:
            raise _known(UnavailableError(f"no answer: {e!r}"), _again=True) from e
        sent, keep = _Sent(conn, deadline), False
        try:
            sent.sock.settimeout(_left(deadline))
            conn.request(r.method, self._url.path.rstrip("/") + r.path, r.body or None, headers)
            sent.res = conn.getresponse()
            if not 200 <= sent.res.status <= 299:
                raise _problem(sent.res.status, sent.read(), sent.res.headers.get("Retry-After", ""))
            yield sent
            keep = bool(conn.sock) and sent.res.isclosed() and len(self._idle) < 32 and not self._closed.is_set()
        except (OSError, http.client.HTTPException, LookupError, TypeError, AttributeError, ValueError) as e:
            if isinstance(e, CountmillError):
                raise
            self._close_idle()  # the server of the others is gone too
            raise _known(OutcomeUnknownError(f"no answer came: {e!r}"), _again=True, _open=True) from e
        finally:
            if keep:
                self._idle.append((conn, clock.monotonic()))
            else:
                conn.close()
                sent.sock.close()

    def _headers(self, r: _Request) -> dict:
        headers = {"Content-Type": r.content_type} if r.body else {}
        if r.key:
            headers["Idempotency-Key"] = r.key
        try:
            token = self._token() if callable(self._token) else self._token
        except Exception as e:
            raise _known(DeniedError(f"the token source: {e}"), status=401) from e
        if token and not (token.isascii() and token.isprintable()):
            raise _known(DeniedError("the token has characters that no header can have"), status=401)
        return {**headers, "Authorization": "Bearer " + token} if token else headers

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        while True:
            try:
                conn, since = self._idle.pop()
            except IndexError:
                break
            if clock.monotonic() - since < _IDLE:
                return conn
            conn.close()
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        conn = kind(self._url.hostname, self._url.port, timeout=min(timeout, 5.0))
        conn.connect()
        return conn

    def _close_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop()[0].close()
            except IndexError:
                return  # another thread took it


class _Sent:
    """A request on its connection, with its answer."""

    res: http.client.HTTPResponse

    def __init__(self, conn: http.client.HTTPConnection, deadline: float) -> None:
        self.sock, self.deadline = conn.sock, deadline

    def read(self) -> bytes:
        text = more = b" "
        while more and not self.res.isclosed():
            self.sock.settimeout(_left(self.deadline))
            more = self.res.read1(1 << 16)
            text += more
            if len(text) > _MAX_ANSWER:
                raise http.client.HTTPException(f"an answer of more than {_MAX_ANSWER} bytes")
        if self.res.length == 0:
            self.res.close()  # Python does not do it before 3.12
        return text


class _Watch:
    """The connections of one watch, and the changes that nobody has taken."""

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._request = client, _Request("GET", path)
        self._changed = threading.Condition()
        self._known: Dict[str, Total] = {}  # by name, over all connections
        self._news: Dict[str, None] = {}  # names that changed since the last update was taken, in order
        self._rest: Tuple[Optional[float], bool] = (None, False)
        self._due = self._begun = False
        self._error: Optional[CountmillError] = None
        self._sent: Optional[_Sent] = None
        self._stop = threading.Event()
        self._ended = self._heard = False
        self._thread = threading.Thread(target=self._run, name="countmill watch", daemon=True)
        with client._lock:
            client._check_open()
            client._watches.append(self)
            self._thread.start()

    def updates(self, deadline: Optional[float]) -> Iterator[Update]:
        while True:
            with self._changed:
                left = None if deadline is None else max(0.0, deadline - clock.monotonic())
                self._changed.wait_for(lambda: self._due or self._ended, left)
                due, self._due, news, self._news = self._due, False, self._news, {}
                got = Update([self._known[n] for n in news if n in self._known], self._rest[0],
                             [n for n in news if n not in self._known], self._rest[1])
            if not due:
                if self._error is not None:
                    raise self._error
                return
            yield got

    def close(self, wait: float = 6.0) -> None:
        self._stop.set()
        if self._sent is not None:
            try:
                self._sent.sock.shutdown(socket.SHUT_RDWR)  # ends a read that waits
            except OSError:
                pass  # it has ended
        self._thread.join(max(0.0, min(wait, 6.0)))  # a connection is made, or given up, within 5 s
        with self._client._lock:
            if self in self._client._watches:
                self._client._watches.remove(self)

    def _run(self) -> None:
        tries = 0
        while not self._stop.is_set() and self._error is None:
            try:
                self._follow()
            except CountmillError as e:
                if self._stop.is_set():
                    break
                if not e._again:
                    self._error = e
                    break
                self._client._report(e)
                tries, self._heard = (0 if self._heard else tries + 1), False
                self._stop.wait(_pause(tries, e))
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _follow(self) -> None:
        """Reads one connection until it breaks."""
        name = data = ""
        self._begun = False
        with self._client._sent(self._request, clock.monotonic() + _SILENCE) as self._sent:
            while not self._stop.is_set():
                self._sent.sock.settimeout(_SILENCE)
                line = self._sent.res.readline(_MAX_ANSWER).decode()
                if not line.endswith("\n"):
                    raise http.client.HTTPException("the server ended the stream")
                what, _, value = line.rstrip("\r\n").partition(":")
                if what == "event":
                    name = value.strip()
                elif what == "data":
                    data += value
                elif not what and not value and data:
                    self._event(name, data)
                    name = data = ""

    def _event(self, name: str, data: str) -> None:
        self._heard, got = True, json.loads(data)
        if name == "problem":
            return self._client._report(_problem(got["status"], data.encode(), ""))
        totals, removed, rest = _totals(got), got.get("removed", []), (got.get("lag"), "truncated" in got)
        with self._changed:
            if not self._begun:  # all totals, of which many may be known
                removed = [n for n in self._known if n not in {t.counter for t in totals}]
                totals = [t for t in totals if _state(t) != _state(self._known.get(t.counter))]
            self._due = self._due or bool(totals or removed) or rest != self._rest or not self._known
            self._begun, self._rest = True, rest
            for t in totals:
                self._known[t.counter] = t
            for n in removed:
                self._known.pop(n, None)
            self._news.update(dict.fromkeys([t.counter for t in totals] + removed))
            self._changed.notify_all()


def _left(deadline: float) -> float:
    left = deadline - clock.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _pause(tries: int, e: CountmillError) -> float:
    return max(min(0.1 * 2 ** min(tries, 10), 5.0) * random.uniform(0.5, 1.0), e.retry_after)


def _conclude(r: _Request, e: CountmillError) -> CountmillError:
    """The error that the caller gets after the last try."""
    if r.read and isinstance(e, OutcomeUnknownError):
        new: CountmillError = UnavailableError(f"no total: {e}")
    elif not r.read and r.maybe and not isinstance(e, (OutcomeUnknownError, ConflictError, IDsReusedError)):
        new = OutcomeUnknownError(f"an earlier try was maybe counted; then: {e}")
    else:
        return e
    new.__cause__ = e
    return _known(new, **vars(e))


def _known(e: CountmillError, **fields: Any) -> CountmillError:
    vars(e).update(fields)
    return e


def _problem(status: int, text: bytes, retry_after: str) -> CountmillError:
    try:
        problem = dict(json.loads(text))
    except (ValueError, TypeError):
        problem = {}  # another program's error need not be JSON
    kind = str(problem.get("type", "")).rpartition(":")[2]
    cls = _ERRORS.get(kind) or _ERRORS.get(status) or (OutcomeUnknownError if status >= 500 else InvalidError)
    detail = problem.get("detail") or problem.get("title") or "no problem+json came with it; is that a countmill?"
    return _known(
        cls(f"{detail} (HTTP {status})"), status=status, problem=problem,
        retry_after=float(retry_after) if retry_after.isdecimal() else 0.0,
        _again=kind != "overflow" and status in _REPEATED, _open=cls is OutcomeUnknownError)


def _line(counter: str, delta: int, **more: Any) -> bytes:
    """An increment as JSON. What the server would refuse is refused here, so that it cannot spoil a batch."""
    try:
        size = len(counter.encode())
    except (UnicodeEncodeError, AttributeError):
        raise InvalidError("counter is not a string of valid Unicode") from None
    if not 1 <= size <= 500:
        raise InvalidError(f"counter has {size} bytes (limit: 1 to 500 bytes)")
    if any(unicodedata.category(r) == "Cc" for r in counter):
        raise InvalidError("counter has a control character (limit: no control characters)")
    if counter[0] == " " or counter[-1] == " " or len(counter) >= 4 and counter[:2] == counter[-2:] == "__":
        raise InvalidError("counter begins or ends with a space, or is of the form __x__")
    if not isinstance(delta, int) or delta == 0 or abs(delta) > MAX_DELTA:
        raise InvalidError(f"delta is {delta!r} (limit: an integer from -(2^53-1) to 2^53-1, not 0)")
    return json.dumps({"counter": counter, "delta": int(delta), **more}, ensure_ascii=False).encode("utf-8", "replace")


def _totals(answer: dict) -> List[Total]:
    return [Total(t["counter"], int(t["total"]), datetime.fromisoformat(t["as_of"].replace("Z", "+00:00")),
                  t["source"], t["shards"], t["exists"], t.get("rate")) for t in answer["totals"]]


def _state(t: Optional[Total]) -> Any:
    """What may change: every read has another as_of."""
    return t and (t.total, t.shards, t.exists, t.rate)


def _query(**parameters: Any) -> str:
    given = {k: v for k, v in parameters.items() if v not in (None, "")}
    return "?" + urlencode(given, doseq=True, quote_via=quote) if given else ""


def _duration(seconds: Optional[float]) -> Optional[str]:
    return None if seconds is None else f"{seconds:.6f}s"


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
