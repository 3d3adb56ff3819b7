"""The page of real daemons on loopback, in headless Chromium: an origin, its workers, and what happens to them."""

import array
import json
import pathlib
import time
import unittest
import urllib.error
import urllib.request

import browser
import weightcast
from daemons import DaemonTest, eventually

ALL_HAVE = "document.querySelector('#verdict-title').textContent === 'All {} workers have version {}'"


def numbers(seed, count=200_000):
    return {"weights": array.array("I", [(seed * 2654435761 + i * 40503) & 0x3FFFFFFF for i in range(count)])}


class PageOfDaemons(DaemonTest):
    def serve(self, *flags):
        """The page's address, of an origin that is started again with a port for operators."""
        self.origin.keep_port()
        self.origin.kill()
        self.origin._flags += ["--http", "127.0.0.1:0", *flags]
        self.origin.start()
        path = pathlib.Path(self.origin.state) / "http_address"
        return f"http://{eventually(lambda: path.exists() and path.read_text().strip())}/"

    def open(self, url):
        page = browser.Browser(height=2600)
        self.addCleanup(page.close)
        page.open(url)
        page.wait("document.querySelector('#connection').dataset.state === 'live'")
        return page

    def publish(self, seed):
        with weightcast.Publisher(self.origin.state) as publisher:
            version = publisher.publish(numbers(seed))
            publisher.wait(version, installed=1.0, timeout=60)
        return version

    def get(self, url):
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            return refused.code, json.loads(refused.read())


class AnswersTest(PageOfDaemons):
    """What a browser is not needed for."""

    def test_the_page_comes_with_its_policy(self):
        url = self.serve()
        with urllib.request.urlopen(url, timeout=30) as answer:
            policy = answer.headers["Content-Security-Policy"]
            body = answer.read().decode()
            self.assertEqual(answer.headers["Content-Type"], "text/html; charset=utf-8")
            self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")
        self.assertIn("default-src 'none'; script-src 'sha256-", policy)
        self.assertIn("require-trusted-types-for 'script'", policy)
        self.assertIn("frame-ancestors 'none'", policy)
        for loose in ("unsafe", "*", "http:"):
            self.assertNotIn(loose, policy)
        self.assertIn("Who feeds whom", body)
        self.assertLess(len(body), 1 << 20)

    def test_metrics_count_what_has_ended_and_how_long_it_took(self):
        url = self.serve()
        self.start_worker("w")

        def value(sample):
            with urllib.request.urlopen(url + "metrics", timeout=30) as answer:
                lines = answer.read().decode().splitlines()
            return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"weightcast_{sample} ")), None)

        complete = 'publications_total{state="complete"}'
        self.assertEqual(value(complete), 0)
        self.publish(1)
        eventually(lambda: value(complete) == 1)
        self.publish(2)
        eventually(lambda: value(complete) == 2)
        self.assertEqual(value('publications_total{state="given up"}'), 0)
        self.assertEqual(value('publication_seconds_count{fraction="1"}'), 2)
        self.assertEqual(value('publication_seconds_bucket{fraction="1",le="+Inf"}'), 2)
        self.assertGreater(value('publication_seconds_sum{fraction="1"}'), 0)
        self.assertEqual(value('phase_seconds_count{phase="encode"}'), 1)

    def test_events_beat_and_say_for_how_long_the_daemon_was_silent(self):
        url = self.serve()
        with urllib.request.urlopen(url + "events", timeout=30) as events:
            for line in events:
                if line == b"event: heartbeat\n":
                    beat = json.loads(events.readline().removeprefix(b"data: "))
                    break
        self.assertGreater(beat["unix_ms"], 1e12)
        self.assertLess(beat["silent_s"], 5)
        self.assertEqual(beat["why"], "")

    def test_who_is_lost_is_so_since_one_time(self):
        url = self.serve()
        self.start_worker("w").kill()

        def lost():
            status, told = self.get(url + "status")
            return next(
                (node["lost_unix_ms"] for node in told["nodes"] if node["name"] == "w" and node["state"] == "lost"), None
            )

        since = eventually(lost)
        self.assertLess(abs(since / 1000 - time.time()), 30)
        for _ in range(20):
            time.sleep(0.3)
            self.assertEqual(lost(), since)

    def test_plans_are_those_of_the_simulator(self):
        url = self.serve()
        question = "plan?workers=12&size_bytes=67108864&uplink_bps=3e8&peer_bps=1e8"
        status, told = self.get(url + question + "&sweep=1,12,13")
        self.assertEqual(status, 200)
        found = {one["topology"]: one for one in told["cases"]}
        self.assertEqual(sorted(found), ["chain", "star", "striped", "tree"])
        # A star shares the origin's uplink: 12 payloads through 300 Mbit/s.
        self.assertAlmostEqual(found["star"]["t100_s"], 12 * 67108864 * 8 / 3e8, delta=0.05)
        self.assertEqual(found["star"]["origin_egress_bytes"], 12 * 67108864)
        self.assertEqual(found["star"]["depth"], 1)
        # Three chains of four.
        self.assertEqual(found["chain"]["origin_egress_bytes"], 3 * 67108864)
        self.assertEqual(found["chain"]["depth"], 4)
        self.assertEqual([one["workers"] for one in told["sweep"]], [1, 12, 13])
        self.assertAlmostEqual(told["sweep"][1]["star_s"], found["star"]["t100_s"])
        self.assertLessEqual(told["sweep"][1]["t100_s"], min(one["t100_s"] for one in told["cases"]) * 1.02)
        # The largest question is answered, too.
        sweep = ",".join(["10000"] * 3)
        status, told = self.get(url + question.replace("workers=12", "workers=10000") + "&sweep=" + sweep)
        self.assertEqual((status, len(told["sweep"])), (200, 3))

    def test_questions_that_cannot_be_are_refused_by_name(self):
        url = self.serve()
        good = {"workers": "12", "size_bytes": "67108864", "uplink_bps": "3e8", "peer_bps": "1e8"}
        for name, value, why in (
            ("workers", "0", "workers is '0'; it has to be a whole number from 1 to 10000"),
            ("workers", "10001", "workers is '10001'"),
            ("workers", "-1", "workers is '-1'"),
            ("size_bytes", "", "size_bytes is ''"),
            ("size_bytes", "1e400", "size_bytes is '1e400'"),
            ("uplink_bps", "nan", "uplink_bps is 'nan'"),
            ("uplink_bps", "inf", "uplink_bps is 'inf'"),
            ("peer_bps", None, "peer_bps is missing"),
            ("peer_uplink_bps", "1", "peer_uplink_bps is '1'"),
            ("delay_ms", "-1", "delay_ms is '-1'"),
            ("sweep", ",".join(["1"] * 21), "sweep has to be at most 20 numbers"),
            ("sweep", "1,,2", "sweep has to be"),
            ("sweep", "10000,10000,10000,9989", "come to 40001 workers together; at most 40000"),
        ):
            query = {**good, name: value}
            text = "&".join(f"{key}={word}" for key, word in query.items() if word is not None)
            status, told = self.get(f"{url}plan?{text}")
            self.assertEqual(status, 400, text)
            self.assertIn(why, told["error"]["message"])

    def test_a_learner_that_is_not_there(self):
        url = self.serve()
        status, told = self.get(url + "learner")
        self.assertEqual(status, 404)
        self.assertIn("--learner", told["error"]["message"])
        self.origin.kill()
        self.origin._flags += ["--learner", "127.0.0.1:9"]
        self.origin.start()
        address = (pathlib.Path(self.origin.state) / "http_address").read_text().strip()
        status, told = self.get(f"http://{address}/learner")
        self.assertEqual(status, 502)
        self.assertIn("the learner does not answer", told["error"]["message"])


@unittest.skipUnless(browser.chromium(), "chromium is not installed")
class LiveTest(PageOfDaemons):
    def test_a_fleet_from_its_first_version_to_a_lost_relay(self):
        url = self.serve("--topology", "chain", "--uplink", "100mbit")
        workers = [
            self.start_worker(f"gpu-{number}", "--uplink", "100mbit", "--downlink", "100mbit") for number in (1, 2, 3)
        ]
        page = self.open(url)
        page.wait("document.querySelectorAll('#chains .node').length >= 1")
        page.wait("document.querySelector('#verdict-title').textContent === '3 workers wait for the first version'")

        # Live: without another load of the page.
        page.run("window.same = true")
        version = self.publish(1)
        page.wait(ALL_HAVE.format(3, version))
        for _ in range(4):
            version = self.publish(version + 1)
        page.wait(ALL_HAVE.format(3, version))
        self.assertTrue(page.run("window.same"))
        self.assertEqual(page.run("document.querySelectorAll('#chains .node').length"), 4)
        # One chain, by the names of the plan.
        self.assertEqual(page.run("document.querySelectorAll('#chains path.edge').length"), 3)
        # Where the time went, of each worker, with the phases that the daemons report.
        page.wait("document.querySelectorAll('#waterfall .bar-row').length === 4")
        page.see("#waterfall-legend", "received", "applied")
        page.run("document.querySelector('#publication-back').click()")
        page.wait(f"document.querySelector('#waterfall-note').textContent.startsWith('version {version - 1}: ')")
        self.assertIn(f"the last {version}", page.text("#history-note"))
        self.assertIn(
            "T_bcast and bytes of 5 publications, versions 1 to 5",
            page.run("document.querySelector('#history svg').getAttribute('aria-label')"),
        )
        self.assertNotIn("is not connected", page.text("#attention"))

        # The planner's answer for the fleet as it is.
        page.wait("document.querySelectorAll('#what-if-table tbody tr').length === 4")
        self.assertIn("One more worker", page.text("#what-if-cost"))
        page.run(
            "document.querySelector('#what-if').elements.workers.value = '0';"
            "document.querySelector('#what-if button[type=submit]').click()"
        )
        page.wait("document.querySelector('#what-if-message').textContent.startsWith('Workers: ')")

        # A relay dies.
        relay = page.run(
            "[...document.querySelectorAll('.node')].map((one) => one.getAttribute('aria-label'))"
            ".find((label) => /^gpu.*from origin/.test(label)).split(',')[0]"
        )
        next(worker for worker in workers if worker.name == relay).kill()
        page.see("#attention", relay, "is not connected")
        version = self.publish(99)
        page.wait(ALL_HAVE.format("2 connected", version))
        self.assertEqual(page.run("document.querySelectorAll('#chains path.edge').length"), 2)

        # The origin's daemon goes, and comes again.
        self.origin.kill()
        page.wait("document.querySelector('#connection').dataset.state === 'lost'")

        problems = [one for one in page.problems if "learner" not in one and "ERR_" not in one]
        self.assertEqual(problems, [])
        self.assertEqual([one for one in page.requested if not one.startswith((url, "data:"))], [])


if __name__ == "__main__":
    unittest.main()
