"""Tests of the package countmill: python3 -m unittest in this directory.

COUNTMILL_BINARY is the path of a built countmill. The tests that need a real one skip without it.
"""
import asyncio
import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest
import zipfile
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock
from urllib.parse import unquote

import backend
import countmill
from countmill import aio

HERE = Path(__file__).parent
NOW = "2026-11-25T10:00:01.000000Z"
BINARY = os.environ.get("COUNTMILL_BINARY", "")


class Script:
    """A server that gives one answer after the other, and keeps what it got."""

    def __init__(self, *steps):
        self.got, script = [], self
        self.load(*steps)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.body = body
                script.got.append((self.headers.get("Idempotency-Key"), body, self.path, self.headers, self.command))
                step = script.steps.pop(0) if script.steps else answer(418)
                step(self)

            do_GET = do_POST = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.base = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def load(self, *steps):
        self.steps = [s for s in steps if s is not unmade]
        self.refuse = len(steps) - len(self.steps)  # connections

    def keys(self):
        return [g[0] for g in self.got]

    def bodies(self):
        return [g[1] for g in self.got]


def answer(status, kind="", retry_after=None, **members):
    def step(h):
        text = json.dumps({"type": "urn:countmill:problem:" + kind, "detail": kind, "status": status, **members}).encode()
        h.send_response(status)
        if retry_after is not None:
            h.send_header("Retry-After", str(retry_after))
        h.send_header("Content-Length", str(len(text)))
        h.end_headers()
        h.wfile.write(text)
    return step


def text(h, members):
    body = json.dumps(members).encode()
    h.send_response(200)
    h.send_header("Content-Length", str(len(body)))
    h.end_headers()
    h.wfile.write(body)


def cut(h):
    h.close_connection = True
    h.connection.shutdown(socket.SHUT_RDWR)


def foreign(status):
    """The answer of a proxy, which may have problems of its own."""
    def step(h):
        text = b'{"type": "urn:proxy:problem:unavailable", "detail": "no upstream", "status": 503}'
        h.send_response(status)
        h.send_header("Content-Length", str(len(text)))
        h.end_headers()
        h.wfile.write(text)
    return step


def unmade(h):
    """Stands for a connection that is refused."""


def stream(*events):
    def step(h):
        h.send_response(200)
        h.send_header("Content-Type", "text/event-stream")
        h.end_headers()
        h.close_connection = True
        for e in events:
            h.wfile.write(e if isinstance(e, bytes) else b": hello\n\nevent: totals\ndata: %s\n\n" % json.dumps(
                {"totals": [total("a", e)], "lag": None}).encode())
    return step


def total(counter, n):
    return {"counter": counter, "total": n, "as_of": "2026-01-02T15:04:05.123456Z", "source": "store", "shards": 1, "exists": True}


def OK(h):
    answer(202, accepted=h.body.count(b'"counter"'))(h)


class Fixture(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.object(countmill, "_pause", lambda tries, e: 0.001)
        patch.start()
        self.addCleanup(patch.stop)

    def open(self, *steps, **options):
        script = Script(*steps)
        self.addCleanup(script.server.server_close)
        self.addCleanup(script.server.shutdown)
        options = {"timeout": 10, "flush_interval": 60, "on_error": self.errors().append, **options}
        client = countmill.Client(script.base, **options)
        connect = client._connect

        def refuse_first(timeout):
            script.refuse -= 1
            if script.refuse >= 0:
                raise ConnectionRefusedError("refused")
            return connect(timeout)
        if script.refuse:
            client._connect = refuse_first
        self.addCleanup(client._close_idle)
        return client, script

    def errors(self):
        self.reported = []
        return self.reported


class Scripted(Fixture):
    def test_retries_are_those_of_the_table(self):
        text = (HERE / "../../docs/reference/retries.md").read_text()
        rows = re.findall(r"^\| (.*?) \| (yes|no) \| (\w+) \|.*\| (.*?) ?\|$", text, re.M)
        self.assertGreater(len(rows), 20)
        for what, repeated, counted, error in rows:
            with self.subTest(what):
                status, _, kind = what.replace("`", "").partition(" ")
                step = {"no connection": unmade, "a connection that breaks": cut}.get(what)
                step = step or (foreign(int(status)) if kind == "from another program" else answer(int(status), kind, accepted=1))
                error = getattr(countmill, error.strip("`") or "CountmillError")
                self.repeats(step, repeated == "yes", error)
                self.reports(step, error)
                if repeated == "yes":
                    with self.assertRaises(countmill.OutcomeUnknownError if counted == "maybe" else countmill.DeniedError):
                        self.open(step, answer(403, "forbidden"))[0].increment("a")

    def repeats(self, step, repeated, error):
        """Two such answers, and then a good one."""
        c, s = self.open(*[step, step, OK] if repeated else [step])
        try:
            c.increment("a")
            self.assertTrue(repeated or error is countmill.CountmillError)
        except error:
            self.assertFalse(repeated)
        self.assertEqual((s.steps, len(set(s.keys())), len(set(s.bodies()))), ([], 1, 1))
        self.assertTrue(s.keys()[0])
        if repeated:
            s.load(step, OK)
            c.add("b")
            c.flush()
            k, b = s.keys()[1 if step is unmade else 3:], s.bodies()[1 if step is unmade else 3:]
            self.assertEqual((s.steps, len(set(k)), len(set(b))), ([], 1, 1), "a batch")

    def reports(self, step, error):
        """One such answer, and no time for a second try."""
        c, s = self.open(step)
        with mock.patch.object(countmill, "_pause", lambda *_: 60):
            if error is countmill.CountmillError:
                return c.increment("a")
            with self.assertRaises(error) as got:
                c.increment("a")
        self.assertIs(type(got.exception), error)

    def test_increments_with_ids_have_no_key(self):
        c, s = self.open(OK)
        c.increment("a", id="x")
        self.assertEqual((s.keys(), json.loads(s.bodies()[0])), ([None], {"counter": "a", "delta": 1, "id": "x"}))

    def test_a_repeat_for_a_value_has_the_same_id(self):
        value = answer(200, first=7, last=7)
        c, s = self.open(answer(504, "outcome-unknown"), value)
        self.assertEqual(c.next("a")[0], 7)
        self.assertEqual(s.bodies()[0], s.bodies()[1])
        self.assertTrue(json.loads(s.bodies()[0])["id"])
        c, _ = self.open(value, answer(403, "forbidden"))
        with self.assertRaises(countmill.OutcomeUnknownError):
            c.next("a", count=2)

    def test_a_server_that_hangs_leaves_time_for_another_try(self):
        release = threading.Event()
        self.addCleanup(release.set)
        c, s = self.open(lambda h: release.wait(60), OK, timeout=20)
        c.increment("a")
        self.assertEqual(len(s.got), 2)

    def test_reads_change_nothing(self):
        c, s = self.open(answer(500, "internal"), cut, answer(500, "overflow"), timeout=0.5)
        with self.assertRaises(countmill.TotalOverflowError):
            c.total("a")
        with mock.patch.object(countmill, "_pause", lambda *_: 60), self.assertRaises(countmill.UnavailableError):
            s.steps = [answer(500, "internal")]
            c.total("a")

    def test_idle_connections_that_broke_are_not_all_tried(self):
        c, s = self.open(*[OK] * 6)
        together = threading.Barrier(6, timeout=20)
        s.steps = [lambda h: (together.wait(), OK(h))] * 6
        threads = [threading.Thread(target=c.increment, args=("a",), daemon=True) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(20)
        until(self, "six idle connections", lambda: len(c._idle) == 6)
        s.steps = [cut, OK]
        with mock.patch.object(countmill.Client, "_connect", autospec=True, side_effect=countmill.Client._connect) as connect:
            c.increment("a")
        self.assertEqual((connect.call_count, len(c._idle)), (2, 1))
        idle = c._idle[0][0]
        with mock.patch.object(countmill, "_IDLE", 0):
            s.steps = [OK]
            c.increment("a")
        self.assertIsNot(c._idle[0][0], idle, "an old connection is not used again")

    def test_no_server(self):
        c = countmill.Client("http://127.0.0.1:1", timeout=0.2)
        with self.assertRaisesRegex(countmill.UnavailableError, "http://127.0.0.1:1"):
            c.increment("a")

    def test_https_to_a_server_without_it(self):
        _, s = self.open()
        with self.assertRaises(countmill.InvalidError):  # at once
            countmill.Client(s.base.replace("http:", "https:"), timeout=60).increment("a")

    def test_errors_have_the_key(self):
        value = answer(200, first=7, last=7)
        for call, again, good in ((lambda c, k: c.increment("a", key=k), "key", OK), (lambda c, k: c.next("a", id=k), "id", value)):
            with self.subTest(again):
                c, s = self.open(foreign(503), good)
                with mock.patch.object(countmill, "_pause", lambda *_: 60), self.assertRaises(countmill.OutcomeUnknownError) as got:
                    call(c, None)
                self.assertTrue(got.exception.key)
                call(c, got.exception.key)
                self.assertEqual((s.got[0][:2], s.got[0][4]), (s.got[1][:2], s.got[1][4]))
        self.assertRaises(countmill.InvalidError, c.increment, "a", key="a\nb")

    def test_a_batch_stays_while_a_proxy_answers(self):
        c, s = self.open(foreign(404), foreign(503), answer(429, "overloaded"), OK)
        c.add("a", 2)
        for _ in range(2):
            with mock.patch.object(countmill, "_pause", lambda *_: 60), self.assertRaises(countmill.OutcomeUnknownError) as got:
                c.flush()
            self.assertEqual(got.exception.increments, [])
        c.flush()
        self.assertEqual((len(set(s.keys())), len(s.got), s.steps), (1, 4, []))

    def test_a_batch_keeps_its_key_until_it_is_certain(self):
        c, s = self.open(answer(504, "outcome-unknown"))
        c.add("a", 2)
        c.add("a", 3)
        c.add("zero", 1)
        c.add("zero", -1)
        with mock.patch.object(countmill, "_pause", lambda *_: 60), self.assertRaises(countmill.OutcomeUnknownError) as got:
            c.flush()
        self.assertEqual(got.exception.increments, [], "the client keeps them")
        c.add("a", 7)
        s.steps = [answer(401, "unauthorized")]
        with self.assertRaises(countmill.OutcomeUnknownError):  # the token has expired
            c.flush()
        s.steps = [OK, OK]
        c.flush()  # both batches
        k, lines = s.keys(), [b.decode() for b in s.bodies()]
        self.assertEqual(len(k), 4)
        self.assertTrue(k[0] == k[1] == k[2] != k[3], k)
        self.assertEqual(lines[2:], ['{"counter": "a", "delta": 5}\n', '{"counter": "a", "delta": 7}\n'])
        self.assertEqual(lines[0], lines[2])

    def test_adds_of_many_threads(self):
        c, s = self.open(*[OK] * 100_000, flush_interval=0.001)
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(1e-6)
        threads = [threading.Thread(target=lambda: [c.add("a") for _ in range(5000)], daemon=True) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        sys.setswitchinterval(interval)
        c.close()
        self.assertEqual(sum(json.loads(line)["delta"] for b in s.bodies() for line in b.splitlines()), 20_000)

    def test_the_background_slows_down_while_the_token_is_refused(self):
        refused, interval, began = 6, 0.005, time.monotonic()
        with self.assertLogs("countmill") as logged:
            c, s = self.open(*[answer(401, "unauthorized")] * refused, OK, flush_interval=interval, on_error=None)
            c.add("a", 2)
            while len(s.got) <= refused and time.monotonic() < began + 60:
                time.sleep(0.01)
        waited = time.monotonic() - began
        self.assertGreaterEqual(waited, interval * (2 ** (refused + 1) - 1), "each wait is twice the one before")
        self.assertEqual(len(logged.output), refused)
        self.assertFalse([line for line in logged.output if "given up" in line], "the client keeps the increments")
        c.close()
        self.assertEqual(json.loads(s.bodies()[-1]), {"counter": "a", "delta": 2})

    def test_a_refused_batch_is_handed_back(self):
        c, s = self.open(answer(403, "forbidden"), OK)
        c.add("a", 2)
        with self.assertRaises(countmill.DeniedError) as got:
            c.flush()
        self.assertEqual(got.exception.increments, [("a", 2)])
        c.add("b")
        c.flush()
        self.assertEqual(json.loads(s.bodies()[1]), {"counter": "b", "delta": 1})
        c, s = self.open(answer(422, "ids-reused", conflicts=[{"position": 0, "id": "x"}]))
        c.add("a")
        with self.assertRaises(countmill.IDsReusedError) as got:
            c.flush()
        c.flush()
        self.assertEqual((got.exception.increments, len(s.got)), ([], 1), "all others were counted")

    def test_refused_lines_are_handed_back_alone(self):
        def refused(lines, *then):
            s.load(answer(403, "forbidden", line=1, lines=lines), *then)
            for name in ("a", "b", "c"):
                c.add(name)
        def gives_up(error, names, call):
            with mock.patch.object(countmill, "_pause", lambda *_: 60), self.assertRaises(error) as got:
                call()
            self.assertEqual("".join(name for name, _ in got.exception.increments), names)
            self.assertEqual(s.steps, [])
        c, s = self.open()
        refused([1, 3], OK)
        gives_up(countmill.DeniedError, "ac", c.flush)
        self.assertEqual((s.bodies()[1], len(set(s.keys()))), (b'{"counter": "b", "delta": 1}\n', 2))
        c.flush()  # nothing is left
        refused([1, 2, 3])
        gives_up(countmill.DeniedError, "abc", c.flush)
        refused([1], answer(403, "forbidden", line=2, lines=[2]), answer(503, "unavailable"))
        gives_up(countmill.UnavailableError, "", c.flush)
        s.steps = [OK]
        gives_up(countmill.DeniedError, "ac", c.flush)
        self.assertEqual(s.keys()[-1], s.keys()[-2])
        for lines in ([], [0, 4], "123", [{}], None):  # of no increment
            refused(lines)
            gives_up(countmill.DeniedError, "abc", c.flush)
        refused([1])
        s.steps.insert(0, cut)
        with self.assertRaises(countmill.OutcomeUnknownError) as got:
            c.flush()
        self.assertEqual(len(got.exception.increments), 3, "maybe counted: not under a new key")
        refused([2], foreign(503))
        gives_up(countmill.OutcomeUnknownError, "bac", c.close)
        sent = len(s.got)
        with self.assertRaises(countmill.DeniedError):
            c._flush(c._deadline(None), c._closed)
        self.assertEqual(len(s.got), sent, "the background leaves the rest to close")

    def test_an_interrupted_flush_loses_no_refusal(self):
        def interrupt(*_):
            raise KeyboardInterrupt
        c, s = self.open(answer(403, "forbidden", lines=[1]))
        c.add("a")
        c.add("b")
        with mock.patch.object(countmill, "_accepted", interrupt), self.assertRaises(KeyboardInterrupt):
            s.steps += [OK]
            c.flush()
        s.steps = [OK]
        with self.assertRaises(countmill.DeniedError) as got:
            c.close()
        self.assertEqual((got.exception.increments, s.keys()[1]), ([("a", 1)], s.keys()[2]))

    def test_no_repeat_beyond_the_deduplication_window(self):
        c, s = self.open(cut)
        c.add("a")
        with mock.patch.object(countmill, "_pause", lambda *_: 60), self.assertRaises(countmill.OutcomeUnknownError):
            c.flush()
        now = time.time()
        with mock.patch.object(countmill.clock, "time", lambda: now + 7.5 * 86400):
            with self.assertRaises(countmill.OutcomeUnknownError) as got:
                c.flush()
        self.assertEqual((got.exception.increments, len(s.got)), ([("a", 1)], 1))

    def test_no_repeat_after_a_suspension(self):
        began, slept = time.time(), 0.0

        def suspended(h):  # the machine, while the answer is on its way
            nonlocal slept
            slept += 7.5 * 86400
            cut(h)

        with mock.patch.object(countmill.clock, "time", lambda: began + slept):
            c, s = self.open(suspended, OK)
            for call in (lambda: c.increment("a"), lambda: c.next("a"), lambda: (c.add("a"), c.flush())):
                s.load(suspended, OK)
                with self.assertRaises(countmill.OutcomeUnknownError) as got:
                    call()
                self.assertEqual((got.exception.status, bool(got.exception.key), len(s.steps)), (0, True, 1))

    def test_memory_is_bounded(self):
        c, s = self.open(OK, max_counters=3)
        for name in "abc":
            c.add(name)
        with self.assertRaises(countmill.OverloadedError):
            c.add("d")
        c.add("a", countmill.MAX_DELTA - 1)
        with self.assertRaises(countmill.OverloadedError):
            c.add("a")
        c.flush()
        self.assertEqual(json.loads(s.bodies()[0].splitlines()[0])["delta"], countmill.MAX_DELTA)
        s.steps = [answer(503, "unavailable")]
        c.add("e")
        with mock.patch.object(countmill, "_pause", lambda *_: 60), self.assertRaises(countmill.UnavailableError):
            c.flush()
        c.add("f")
        c.add("g")
        with self.assertRaises(countmill.OverloadedError):  # what is on its way counts too
            c.add("h")
        self.assertRaises(countmill.InvalidError, countmill.Client, "http://a", max_counters=7501)
        c, s = self.open(OK)
        for n in range(7500):  # the longest lines that there are
            c.add(f"{n:06}" + '"' * 494, -countmill.MAX_DELTA)
        c.flush()
        self.assertLess(len(s.bodies()[0]), 8 << 20, "the server's limit")

    def test_every_call_ends(self):
        release = threading.Event()
        self.addCleanup(release.set)

        def drip(h):
            h.send_response(200)
            h.send_header("Content-Length", "100000")
            h.end_headers()
            with contextlib.suppress(OSError):
                while not release.wait(0.05):
                    h.wfile.write(b" ")

        for step in (lambda h: release.wait(20), drip):
            c, s = self.open(*[step] * 20, timeout=0.4)
            began = time.monotonic()
            with self.assertRaises(countmill.UnavailableError):
                c.total("a")
            with self.assertRaises(countmill.OutcomeUnknownError):
                c.increment("a")
            self.assertLess(time.monotonic() - began, 5)

    def test_another_number_accepted_is_no_answer(self):
        for n in (0, 2):
            c, s = self.open(answer(202, accepted=n), answer(403, "forbidden"))
            with self.assertRaises(countmill.OutcomeUnknownError):
                c.increment("a")
            self.assertEqual(s.steps, [], "it is repeated")
        c, s = self.open(answer(202, accepted=1), OK)
        c.add("a")
        c.add("b")
        c.flush()
        self.assertEqual((len(s.got), len(set(s.keys()))), (2, 1))

    def test_receipts(self):
        early, late = "2026-01-02T15:04:05.123456Z", "2026-01-02T15:04:06.000001Z"
        read = answer(200, totals=[total("a", 1)])
        c, s = self.open(
            answer(202, accepted=1, receipt="AQ_-"), read, answer(202, accepted=1, counted_as_of=late), read, read, read,
            answer(409, "not-counted-yet"), answer(410, "receipt-expired"), answer(410, "other-database"),
            answer(200, totals=[total("a", 1)], dead_letters=[{"key": "l-1", "discarded": False}]))
        done = c.increment("a")
        self.assertEqual((done.receipt, done.counted_as_of), ("AQ_-", None))
        c.total("a", after=done, wait=0.5, min_as_of=datetime.fromisoformat(early.replace("Z", "+00:00")))
        done = c.increment("a")
        self.assertEqual((done.receipt, str(done.counted_as_of)), ("", "2026-01-02 15:04:06.000001+00:00"))
        first = c.total("a", after=done)
        self.assertEqual(str(first.as_of), "2026-01-02 15:04:05.123456+00:00")
        c.total("a", after=done, min_as_of=first.as_of)
        c.total("a", min_as_of=first.as_of)
        for error in (countmill.NotCountedYetError, countmill.ReceiptGoneError, countmill.ReceiptGoneError, countmill.DeadLetteredError):
            with self.assertRaises(error) as got:
                c.total("a", after="AQ_-")
        self.assertEqual((got.exception.problem["dead_letters"][0]["key"], got.exception.problem["totals"][0].total), ("l-1", 1))
        asked = [unquote(g[2]).replace("+00:00", "Z") for g in s.got if g[2] != "/v1/increments"]
        self.assertEqual(asked, ["/v1/totals?min_as_of=" + early + "&after=AQ_-&wait=0.500000s"] + ["/v1/totals?min_as_of=" + late] * 2 + ["/v1/totals?min_as_of=" + early]
                         + ["/v1/totals?after=AQ_-&wait=2.000000s"] * 4)

    def test_retry_after(self):
        mock.patch.stopall()
        c, s = self.open(answer(429, "quota", retry_after=1), OK, answer(503, "unavailable", retry_after=60))
        began = time.monotonic()
        c.increment("a")
        self.assertGreaterEqual(time.monotonic() - began, 1)
        with self.assertRaises(countmill.UnavailableError) as got:
            c.increment("a")
        self.assertEqual(got.exception.retry_after, 60)
        self.assertLess(time.monotonic() - began, 5, "a wait beyond the time-out is no wait")

    def test_background_and_close(self):
        c, s = self.open(answer(400, "invalid"), OK, OK, flush_interval=0.02)
        reported = self.reported
        c.add("a")
        until(self, "the refusal is reported", lambda: reported)
        self.assertEqual(reported[0].increments, [("a", 1)])
        c.add("b")
        until(self, "the next batch is sent", lambda: len(s.got) > 1)
        c.add("c")
        c.close()
        self.assertIn(b'"c"', s.bodies()[-1])
        self.assertFalse(c._thread.is_alive())
        for call in (c.add, c.increment):
            self.assertRaises(countmill.ClosedError, call, "a")
        c, s = self.open(answer(503, "unavailable"), OK)
        c.add("a")
        with mock.patch.object(countmill, "_pause", lambda *_: 60), self.assertRaises(countmill.UnavailableError) as got:
            c.close()
        self.assertEqual(got.exception.increments, [("a", 1)])
        c.close()
        self.assertEqual(s.keys()[0], s.keys()[1])

    def test_watch_connects_again(self):
        problem = b'event: problem\ndata: {"type":"urn:countmill:problem:unavailable","status":503}\n\n'
        c, s = self.open(stream(1, 2, problem), cut, answer(503, "unavailable"), stream(3, 2**63 - 1), answer(403, "forbidden"))
        reported, seen = self.reported, []
        with self.assertRaises(countmill.DeniedError):
            for u in c.watch(["a", "b c"], max_staleness=0):
                seen.append((u.totals[0].total, u.whole))
        self.assertEqual(seen, [(1, True), (2, False), (3, True), (2**63 - 1, False)])
        self.assertEqual(len(reported), 5, reported)
        self.assertEqual(s.got[0][2], "/v1/watch?counter=a&counter=b%20c&max_staleness=0.000000s")

    def test_watch_ends(self):
        forever = threading.Event()
        self.addCleanup(forever.set)

        def quiet(h):
            stream(5)(h)
            forever.wait(20)
        c, _ = self.open(quiet, quiet, quiet)
        began = time.monotonic()
        self.assertEqual([u.totals[0].total for u in c.watch(["a"], timeout=2)], [5])
        for u in c.watch(["a"]):
            break
        watch = c.watch(["a"])
        next(watch)
        threading.Timer(0.1, c.close).start()
        self.assertEqual(list(watch), [])
        self.assertRaises(countmill.ClosedError, next, c.watch(["a"]))
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(c._watched, set())

    def test_watch_gives_changes_and_what_is_gone(self):
        def changes(*totals, **more):
            return b"event: totals\ndata: %s\n\n" % json.dumps({"totals": [total(*t) for t in totals], "lag": None, **more}).encode()
        c, s = self.open(
            stream(changes(("a", 1), ("b", 1), ("c", 1)), changes(("a", 2)), changes(("b", 5), removed=["c"], truncated=True)),
            stream(changes(("a", 3), ("d", 1))), answer(403, "forbidden"))
        everything, seen = {}, []
        with self.assertRaises(countmill.DeniedError):
            for u in c.watch(prefix="", limit=3, rates=True):
                everything = {} if u.whole else everything
                everything.update((t.counter, t.total) for t in u.totals)
                for name in u.removed:
                    del everything[name]
                seen.append((dict(everything), u.truncated))
        self.assertEqual(seen, [
            ({"a": 1, "b": 1, "c": 1}, False), ({"a": 2, "b": 1, "c": 1}, False), ({"a": 2, "b": 5}, True), ({"a": 3, "d": 1}, False)])
        self.assertEqual(s.got[0][2], "/v1/watch?limit=3&rates=true&prefix=")

    def test_a_slow_caller_of_watch_gets_the_newest(self):
        forever = threading.Event()
        self.addCleanup(forever.set)

        def newest(h):
            stream(1000)(h)
            forever.wait(20)
        c, s = self.open(stream(*range(500)), *[newest] * 10)  # a caller on a busy machine may be slow again
        with mock.patch.object(countmill, "_BEHIND", 0.1):
            for n, u in enumerate(c.watch(["a"])):
                if u.totals[0].total == 1000:
                    break
                time.sleep(0.03)
        self.assertLess(n, 20, "updates before the newest")
        self.assertTrue(u.whole)

    def test_lists_name_what_overflowed(self):
        c, s = self.open(answer(200, totals=[total("a", 1)], overflowed=["b"], next_page_token="n/1"), answer(200, totals=[total("c", -(2**63))]))
        seen = []
        with self.assertRaisesRegex(countmill.TotalOverflowError, "'b'"):
            for t in c.list("x&"):
                seen.append((t.counter, t.total))
        self.assertEqual(seen, [("a", 1), ("c", -(2**63))])
        self.assertEqual(s.got[1][2], "/v1/counters?prefix=x%26&limit=1000&page_token=n%2F1")

    def test_the_journal_goes_over_pages(self):
        def line(key, delta, **more):
            return {"key": key, "time": "2026-11-25T10:00:00Z", "counter": "a", "delta": delta, "part": "00", **more}
        c, s = self.open(answer(200, entries=[line("k1", 5, sender="shop")], next="k1", settled_until=NOW),
                         answer(200, entries=[line("k2", -(2**60))], settled_until=NOW),
                         answer(200, entries=[line("k1", 5)], next="k1", previous="k1", settled_until=NOW))
        self.assertEqual([(e.key, e.delta, e.sender) for e in c.journal("a&", after="k0")], [("k1", 5, "shop"), ("k2", -(2**60), "")])
        self.assertEqual(s.got[0][2], "/v1/journal?counter=a%26&after=k0&limit=1000")
        self.assertEqual(s.got[1][2], "/v1/journal?counter=a%26&after=k1&limit=1000")
        page = c.journal_page("a", before="f" * 40, limit=1)
        self.assertEqual((page.entries[0].delta, page.next, page.previous, page.settled_until.year), (5, "k1", "k1", 2026))
        self.assertEqual(s.got[2][2], "/v1/journal?counter=a&before=" + "f" * 40 + "&limit=1")

    def test_series(self):
        row = {"time": "2026-11-25T00:00:00+05:30", "counter": "a", "value": 2**60, "partial": False}
        c, s = self.open(answer(200), answer(200))
        s.steps = [lambda h: text(h, [row, row])]
        rows = c.series(["a", "b&"], step="1d", tz="Asia/Kolkata", start=datetime(2026, 11, 1, tzinfo=timezone.utc))
        self.assertEqual(s.got[0][2], "/v1/series?counter=a&counter=b%26&step=1d&tz=Asia%2FKolkata&from=2026-11-01T00%3A00%3A00%2B00%3A00")
        self.assertEqual([(r.value, r.partial) for r in rows], [(2**60, False), (2**60, False)])
        self.assertEqual(rows[0].time.isoformat(), "2026-11-25T00:00:00+05:30")
        self.assertRaises(countmill.InvalidError, c.series, ["a"], start=datetime(2026, 11, 1))

    def test_boards_of_a_window(self):
        scan = {"complete_as_of": NOW, "partial": True}
        c, s = self.open(answer(200, top=[{"counter": "a", "total": 2**60, "rank": 1}], overflowed=["o"], **scan),
                         answer(200, counter="a", total=2**60, rank=1, of=5, **scan))
        top, rank = c.top("sites", 1, of="groups", window="today", tz="Asia/Kolkata"), c.rank("sites", "a", window="1h", tz="Asia/Kolkata")
        self.assertEqual([g[2] for g in s.got], ["/v1/top?index=sites&n=1&of=groups&window=today&tz=Asia%2FKolkata",
                                                 "/v1/rank?index=sites&counter=a&window=1h&tz=Asia%2FKolkata"])
        self.assertEqual(top.overflowed, ["o"])
        self.assertEqual((top.top, rank.total, rank.rank, rank.of), ([("a", 2**60, 1)], 2**60, 1, 5))
        for board in (top, rank):
            self.assertEqual((board.complete_as_of.year, board.partial), (2026, True))

    def test_an_overflow_beside_a_total(self):
        fine = {"counter": "a", "total": 7, "as_of": NOW, "source": "store", "shards": 1, "exists": True}
        c, _ = self.open(answer(200, totals=[{**fine, "counter": "o", "total": None, "error": "urn:countmill:problem:overflow"}, fine], lag=None))
        with self.assertRaises(countmill.TotalOverflowError) as caught:
            c.totals(["o", "a"])
        self.assertEqual((caught.exception.problem["overflowed"], [t.total for t in caught.exception.problem["totals"]]), (["o"], [7]))

    def test_changes_that_may_be_repeated(self):
        index = {"name": "sites", "match": "page:{site}:*", "group": "site:{site}", "state": "building", "ranges": 2, "ranges_done": 1, "checked_at": None}
        for call, method, path, made in (
            (lambda c: c.create_index("sites", "page:{site}:*", "site:{site}"), "POST", "/v1/indexes", answer(200, indexes=[index])),
            (lambda c: c.delete_index("a&b"), "DELETE", "/v1/indexes?name=a%26b", answer(200, indexes=[index])),
            (lambda c: c.add_series("a*", "15m:400d"), "POST", "/v1/rules/series", answer(200, version=1, series=[], journal=[])),
            (lambda c: c.remove_series("a*"), "DELETE", "/v1/rules/series?pattern=a%2A", answer(200, version=1, series=[], journal=[])),
            (lambda c: c.delete_sequence("user:1"), "DELETE", "/v1/sequences?sequence=user%3A1", answer(200, sequence="user:1", last=7, exists=True)),
        ):
            with self.subTest(path):
                c, s = self.open(cut, made)
                call(c)
                self.assertEqual([(g[4], g[2], g[1]) for g in s.got], [(method, path, s.got[0][1])] * 2)
                c, s = self.open(cut, answer(404, "not-found"))
                with self.assertRaises(countmill.OutcomeUnknownError):
                    call(c)
                c, s = self.open(answer(404, "not-found"))
                with self.assertRaises(countmill.NotFoundError):
                    call(c)
        c, s = self.open(answer(500, "internal"), timeout=0.5)
        with mock.patch.object(countmill, "_pause", lambda *_: 60), self.assertRaises(countmill.UnavailableError):
            c.indexes()

    def test_addresses_and_tokens(self):
        for base in ("", "127.0.0.1:8080", "ftp://a", "http://a?b", "http://u:p@a", "http://", "http://a:99999", "http://a/b c", "http://a..b"):
            self.assertRaises(countmill.InvalidError, countmill.Client, base)
        self.assertRaisesRegex(countmill.InvalidError, "plain http", countmill.Client, "http://example.com", token="t")
        countmill.Client("http://example.com", token="t", insecure=True)
        self.assertRaisesRegex(countmill.InvalidError, "^the token has", countmill.Client, "http://127.0.0.1", token="a b")
        c, s = self.open(OK, token=" one\r\n")  # of a file
        c.increment("a")
        self.assertEqual(s.got[0][3]["Authorization"], "Bearer one")
        c, s = self.open(OK, OK, token=iter(["one", "two\n", "a\nb"]).__next__)
        c.increment("a")
        c.increment("a")
        self.assertEqual([g[3]["Authorization"] for g in s.got], ["Bearer one", "Bearer two"])
        for _ in range(2):  # not a header; none left
            self.assertRaises(countmill.DeniedError, c.increment, "a")


def until(test, what, true, seconds=30):
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            test.fail("waited in vain: " + what)
        time.sleep(0.01)


class Server:
    """A countmill up on one port, which can be killed and started again."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="countmill-python-")
        for _ in range(100):  # below the ports that the system gives to others
            self.port = random.randrange(15000, 30000)
            with socket.socket() as s, contextlib.suppress(OSError):
                s.bind(("127.0.0.1", self.port))
                break
        self.base = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [BINARY, "up", "--listen", f"127.0.0.1:{self.port}", "--data", self.dir], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def end(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class Packages(unittest.TestCase):
    def test_an_archive_builds_the_same_wheel(self):
        with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
            with tarfile.open(Path(here, backend.build_sdist(here))) as archive:
                archive.extractall(there)
            (source,) = Path(there).iterdir()
            name = subprocess.run([sys.executable, "-c", "import backend; print(backend.build_wheel('.'))"], cwd=source, stdout=subprocess.PIPE,
                                  check=True, text=True, timeout=60).stdout.strip()
            self.assertEqual(backend.build_wheel(here), name)
            self.assertEqual(Path(here, name).read_bytes(), (source / name).read_bytes())
            with zipfile.ZipFile(Path(here, name)) as wheel:
                self.assertIn("countmill/aio.py", wheel.namelist())


class Async(Fixture):
    """The calls of aio.Client are those of Client."""

    def run_with(self, script, use, **options):
        async def run():
            async with aio.Client(script.base, flush_interval=60, **options) as c:
                return await asyncio.wait_for(use(c), 60)
        return asyncio.run(run())

    def test_has_every_call(self):
        def calls(kind):
            return {name for name in vars(kind) if not name.startswith("_")}
        self.assertEqual(calls(aio.Client), calls(countmill.Client))

    def test_counts_and_reads(self):
        _, s = self.open(answer(429, "overloaded"), OK, answer(200, totals=[total("a", 2)]), foreign(404), OK)

        async def use(c):
            await c.increment("a", 2, id="x")
            c.add("b", 3)
            got = await c.total("a")
            with self.assertRaises(countmill.OutcomeUnknownError):
                await c.increment("a")
            return got.total
        self.assertEqual(self.run_with(s, use), 2)
        self.assertEqual(json.loads(s.bodies()[-1]), {"counter": "b", "delta": 3}, "closing sends the rest")

    def test_pages_end_with_their_error(self):
        _, s = self.open(answer(200, totals=[total("a", 1)], overflowed=["b"], next_page_token="n"), answer(200, totals=[total("c", 2)]))
        seen = []

        async def use(c):
            with self.assertRaises(countmill.TotalOverflowError):
                async for t in c.list():
                    seen.append(t.total)
        self.run_with(s, use)
        self.assertEqual(seen, [1, 2])

    def test_a_watch_that_waits_ends_with_its_task_and_with_the_client(self):
        forever = threading.Event()
        self.addCleanup(forever.set)

        def waits(h):
            stream(7)(h)
            forever.wait(60)
        _, s = self.open(waits, waits)
        seen = []

        async def use(c):
            async def follow():
                async for u in c.watch(["a"]):
                    seen.append(u.totals[0].total)
            tasks = []
            for n in (1, 2):
                tasks.append(asyncio.ensure_future(follow()))
                while len(seen) < n:
                    await asyncio.sleep(0.01)
            tasks[0].cancel()
            with self.assertRaises(asyncio.CancelledError):
                await tasks[0]
            await c.close()
            await tasks[1]
            with self.assertRaises(countmill.ClosedError):
                await c.increment("a")
        self.run_with(s, use)
        self.assertEqual(seen, [7, 7])
        until(self, "the threads end", lambda: not [t for t in threading.enumerate() if "watch" in t.name])


@unittest.skipUnless(BINARY, "COUNTMILL_BINARY is not set: it is the path of a built countmill")
class Real(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.end)

    def setUp(self):
        self.c = countmill.Client(self.server.base)
        self.addCleanup(self.c.close)

    def test_readme(self):
        blocks, out = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.S), io.StringIO()
        with contextlib.redirect_stdout(out):
            for code in blocks:
                exec(code.replace("http://127.0.0.1:8080", self.server.base), {})
        self.assertEqual(out.getvalue(), "page:/home 1\norders 1\n2\n")

    def test_totals_are_exact(self):
        for _ in range(5):
            self.c.add("big", 2**52 + 1)
            self.c.flush()
        self.c.increment("big", countmill.MAX_DELTA)
        self.assertEqual(self.c.total("big", max_staleness=0).total, 5 * (2**52 + 1) + countmill.MAX_DELTA)
        got = self.c.totals(["nobody's", "big"])
        self.assertEqual(([t.counter for t in got], got[0].exists, got[1].exists), (["nobody's", "big"], False, True))
        self.assertIsNotNone(got[1].as_of.tzinfo)
        for delta in (1, 1):
            self.c.increment("with id", delta, id="x")
        with self.assertRaises(countmill.IDsReusedError) as got:
            self.c.increment("with id", 2, id="x")
        self.assertEqual(got.exception.conflicts, [{"position": 0, "counter": "with id", "id": "x", "delta": 2}])
        self.assertEqual(self.c.total("with id").total, 1)

    def test_reads_what_it_wrote(self):
        for n in range(1, 21):
            done = self.c.increment("own")
            self.assertIsNotNone(done.counted_as_of)
            self.assertEqual(self.c.total("own", after=done, max_staleness=60).total, n)

    def test_series(self):
        self.c.add_series("curve:*", "1m:6h,15m:400d")
        self.assertEqual([(r.pattern, r.keep, r.ended) for r in self.c.rules().series], [("curve:*", "1m:6h,15m:400d", None)])
        self.c.increment("curve:a", 3)
        rows = self.c.series(["curve:a"], step="1d", tz="Asia/Kathmandu")
        self.assertEqual((sum(r.value for r in rows), rows[-1].counter, rows[-1].partial), (3, "curve:a", True))
        with self.assertRaises(countmill.NotFoundError):
            self.c.series(["no curve"])
        self.assertIsNotNone(self.c.remove_series("curve:*").series[0].ended)

    def test_asyncio(self):
        async def use():
            async with aio.Client(self.server.base) as c:
                await asyncio.gather(*(c.increment("async") for _ in range(20)))
                async for u in c.watch(["async"], max_staleness=0):
                    if u.totals[0].total == 20:
                        return [t.total async for t in c.list("async")]
        self.assertEqual(asyncio.run(asyncio.wait_for(use(), 60)), [20])

    def test_sequences(self):
        self.assertEqual(list(self.c.next("numbers")), [1])
        now = datetime.now().astimezone()
        for _ in range(2):
            self.assertEqual(list(self.c.next("numbers", id="x", count=3, time=now)), [2, 3, 4])
        with self.assertRaises(countmill.ConflictError):
            self.c.next("numbers", id="x", count=2)
        with self.assertRaises(countmill.IDExpiredError):
            self.c.next("numbers", id="y", time=datetime.fromisoformat("2020-01-01T00:00:00+00:00"))
        for wrong in ({"time": now}, {"id": "z", "time": datetime.now()}, {"count": 1001}):
            with self.assertRaises(countmill.InvalidError):
                self.c.next("numbers", **wrong)
        self.assertEqual(self.c.next("numbers")[0], 5)
        self.assertEqual(self.c.sequence("numbers"), countmill.SequenceState("numbers", 5, True))
        self.assertEqual(self.c.delete_sequence("numbers"), countmill.SequenceState("numbers", 5, True))
        self.assertEqual(self.c.sequence("numbers"), countmill.SequenceState("numbers", 5, False))

    def test_indexes_and_boards(self):
        for name, n in (("board:a:1", 5), ("board:a:2", 7), ("board:b:1", 2**60 // 2**10)):
            self.c.increment(name, n)
        self.c.create_index("boards", "board:{x}:*", "x:{x}")
        until(self, "the index serves", lambda: self.c.indexes()[0].state == "serving")
        self.assertEqual([(x.name, x.match, x.group) for x in self.c.indexes()], [("boards", "board:{x}:*", "x:{x}")])
        self.assertEqual(self.c.top("boards", 2).top, [("board:b:1", 2**50, 1), ("board:a:2", 7, 2)])
        self.assertEqual(self.c.top("boards", of="groups").top, [("=x:b", 2**50, 1), ("=x:a", 12, 2)])
        rank = self.c.rank("boards", "board:a:2")
        self.assertEqual((rank.rank, rank.of, rank.total, rank.counter), (2, 3, 7, "board:a:2"))
        self.assertIsNone(self.c.rank("boards", "board:c:none").rank)
        with self.assertRaises(countmill.NotFoundError):  # no rule for series
            self.c.top("boards", window="today", tz="Asia/Kolkata")
        self.assertEqual(self.c.delete_index("boards")[0].state, "deleting")

    def test_names_are_refused_as_the_server_does(self):
        def refused(body):
            with mock.patch.object(countmill, "_line", lambda *a, **k: body), self.assertRaises(countmill.InvalidError) as got:
                self.c.increment("a")
            self.assertEqual(got.exception.status, 400)
        for name in ("", "x" * 501, "ä" * 251, "a\x00", "a\x7f", "a\x85", " a", "a ", "=a", "____", "__a__", "__\u2028__"):
            with self.subTest(name):
                self.assertRaises(countmill.InvalidError, self.c.add, name)
                refused(json.dumps({"counter": name}).encode())
        for delta in (0, 2**53, -(2**53), 1.0, "1"):
            self.assertRaises(countmill.InvalidError, self.c.add, "a", delta)
        self.assertRaises(countmill.InvalidError, self.c.add, "\ud800")
        names = ["x" * 500, "ä" * 250, "__", "___", "_a__", "\u00a0a", '"\\/<&>', "\U0001f600", "a\u2028b", "\u3000"]
        for name in names:
            self.c.add(name, 2)
        self.c.flush()
        self.assertEqual([t.total for t in self.c.totals(names)], [2] * len(names))

    def test_list_goes_over_pages(self):
        for n in range(2300):
            self.c.add(f"list:{n:04}", n + 1)
        self.c.flush()
        self.assertEqual([(t.counter, t.total) for t in self.c.list("list:")], [(f"list:{n:04}", n + 1) for n in range(2300)])

    def test_kills(self):
        """4,000 keyed requests and as many adds from 8 threads, while the server is killed: all count once."""
        c = countmill.Client(self.server.base, timeout=100, flush_interval=0.02, on_error=lambda e: None)
        done, failed, kills = [0] * 8, [], 0

        def caller(n):
            try:
                for i in range(500):
                    c.increment(f"kills:{i % 5}", i + 1, id=f"{n}-{i}" if i % 2 else None)
                    c.add(f"added:{n % 3}", i + 1)
                    done[n] += 1
            except Exception as e:
                failed.append(e)

        seen, watched = [], threading.Event()

        def watch():
            for u in c.watch(["kills:0"], max_staleness=0):
                seen.append(u.totals[0].total)
                if seen[-1] == want[0]:
                    watched.set()
                    return

        want = [8 * sum(i + 1 for i in range(500) if i % 5 == k) for k in range(5)]
        threads = [threading.Thread(target=caller, args=(n,), daemon=True) for n in range(8)]
        threading.Thread(target=watch, daemon=True).start()
        for t in threads:
            t.start()
        deadline = time.monotonic() + 100
        for at in (500, 1500, 2500, 3500):
            until(self, f"{at} requests", lambda: sum(done) >= at or failed, deadline - time.monotonic())
            self.assertEqual(failed, [])
            self.server.kill()
            kills += 1
            self.server.start()
        for t in threads:
            t.join(max(0, deadline - time.monotonic()))
        self.assertEqual((failed, done), ([], [500] * 8))
        c.flush()
        self.assertEqual([t.total for t in c.totals([f"kills:{k}" for k in range(5)], max_staleness=0)], want)
        added = [t.total for t in c.totals([f"added:{k}" for k in range(3)], max_staleness=0)]
        self.assertEqual(added, [sum(range(501)) * len([n for n in range(8) if n % 3 == k]) for k in range(3)])
        self.assertTrue(watched.wait(30), f"the watch has seen {seen[-3:]}, not {want[0]}")
        self.assertEqual(seen, sorted(seen))
        c.close()
        print(f"{sum(done)} keyed requests and as many adds, {kills} kills, {len(seen)} updates seen", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
