"""The page with a thousand workers that are not there, and with hostile names. In headless Chromium."""

import os
import pathlib
import unittest

import browser
import simulated

PAGE = pathlib.Path(os.environ.get("WEIGHTCAST_PAGE", ""))
PAGE_BYTES_MAX = 1 << 20

# What the browser says of paths that this server does not have.
EXPECTED = ("404 (Not Found)",)


@unittest.skipUnless(browser.chromium(), "chromium is not installed")
class PageTest(unittest.TestCase):
    def serve(self, fleet, pace=1.0):
        server = simulated.Server(PAGE.read_bytes(), fleet, pace)
        self.addCleanup(server.close)
        page = browser.Browser()
        self.addCleanup(page.close)
        page.open(server.url)
        page.wait("document.querySelector('#connection').dataset.state === 'live'")
        return server, page

    def expect_well(self, server, page):
        """Nothing went wrong in it, and it asked nobody but its server."""
        self.assertEqual([problem for problem in page.problems if not any(text in problem for text in EXPECTED)], [])
        foreign = [url for url in page.requested if not url.startswith((server.url, "data:"))]
        self.assertEqual(foreign, [])

    def test_is_one_small_file(self):
        self.assertLess(PAGE.stat().st_size, PAGE_BYTES_MAX)
        text = PAGE.read_text()
        for outside in (' src="', "url(http", "@import"):
            self.assertNotIn(outside, text.split("<script>")[0])

    def test_a_thousand_workers_are_cells_that_can_be_searched(self):
        server, page = self.serve(simulated.Fleet(1000, publications=1000), pace=20)
        page.wait("document.querySelectorAll('.cell').length === 1000")
        self.assertIn("1,000", page.text("#tiles"))
        # It goes on as versions come.
        version = page.run("Number(document.querySelector('#verdict-title').textContent.match(/ersion (\\d+)/)[1])")
        page.wait(f"Number(document.querySelector('#verdict-title').textContent.match(/ersion (\\d+)/)[1]) > {version}")
        # All of one seed's chain stand in one strip.
        self.assertEqual(page.run("document.querySelectorAll('.strip').length"), 11)
        # A search leaves that worker and the one that it feeds in the table, and dims the others in the picture.
        page.run("document.querySelector('#workers').scrollIntoView()")
        page.run("document.querySelector('#query').focus()")
        page.call("Input.insertText", text="gpu-0123")
        page.wait("document.querySelectorAll('#worker-table tbody tr').length === 2")
        self.assertIn("gpu-0123", page.text("#worker-table tbody"))
        self.assertIn("2 of 1,000 workers", page.text("#workers-note"))
        page.run("scrollTo(0, 0)")
        page.wait("document.querySelectorAll('.cell.missed').length === 998")
        self.expect_well(server, page)

    def test_a_relay_that_is_lost_appears_and_is_filed_among_those_not_fed(self):
        fleet = simulated.Fleet(60, chains=4, standby=1)
        server, page = self.serve(fleet)
        page.wait("document.querySelectorAll('.cell').length === 60")
        self.assertNotIn("is not connected", page.text("#attention"))
        fleet.lost["gpu-0007"] = "the peer closed"
        page.wait("document.querySelector('#attention').innerText.includes('is not connected; the peer closed')")
        self.assertTrue(
            page.text("#attention").index("gpu-0007") < page.text("#attention").index("gpu-0059"), "the worst first"
        )
        self.expect_well(server, page)

    def test_a_learner_is_shown_with_what_its_workers_cost(self):
        server = simulated.Server(PAGE.read_bytes(), simulated.Fleet(4, chains=2, standby=0))
        self.addCleanup(server.close)
        row = {
            "version": 1,
            "version_s": 1.0,
            "active": True,
            "wanted": True,
            "silent_s": 0.5,
            "rollouts_per_s": 2.5,
            "tokens_per_s": 100,
            "under_way": 8,
            "admitted": 1200,
            "fault": "",
            "price_per_hour": 0.5,
            "refused": {},
        }
        server.learner = {
            "version": 7,
            "metrics": {
                "training/global_step": 7,
                "critic/score/mean": 0.625,
                "off_policy/mean": 1.25,
                "off_policy/max": 3,
                "bubble_ratio": 0.02,
                "cost_total": 0.07,
                "timing_s/step": 2.5,
                "mu_min": 4.0,
                "t_bcast": None,
            },
            "workers": [
                {**row, "name": "gpu-0000"},
                {**row, "name": "gpu-0001", "fault": "it has had leases for long"},
            ],
        }
        page = browser.Browser(height=2600)
        self.addCleanup(page.close)
        page.open(server.url)
        page.wait("!document.querySelector('#learner-panel').hidden")
        page.wait("document.querySelector('#learner-tiles').innerText.includes('0.625')")
        tiles = page.text("#learner-tiles")
        for text in (
            "1.3 steps",
            "at most 3",
            "2.0 %",
            "0.0100",
            "5.0 /s",
            "4.0 /s keep it busy",
            "of 2 workers",
            "2.50 s",
        ):
            self.assertIn(text, tiles)
        self.assertIn("it has had leases for long", page.text("#learner-workers"))
        page.wait("document.querySelector('#tiles').innerText.includes('1.00 an hour for 2 active workers')")
        server.learner = {
            **server.learner,
            "metrics": {**server.learner["metrics"], "training/global_step": 8, "critic/score/mean": 0.75},
        }
        page.see("#learner-tiles", "0.750")
        self.assertRegex(page.text("#learner-tiles"), r"(?i)cost per step\s+0\.00875")
        server.learner = {**server.learner, "metrics": {**server.learner["metrics"], "cost_total": 0}}
        page.wait("/cost per step\\s+–/i.test(document.querySelector('#learner-tiles').innerText)")
        page.wait("document.querySelectorAll('#learner-charts path.series').length === 2")
        self.expect_well(server, page)

    def test_what_data_says_is_text(self):
        fleet = simulated.Fleet(5, chains=2, standby=0)
        evil = '<img src=x onerror="window.struck = 1">\'"&<script>window.struck = 1</script>'
        fleet.names[1] = evil
        fleet.unreachable[evil] = (evil, evil, evil)
        server, page = self.serve(fleet)
        page.wait("document.querySelector('#attention').innerText.includes('<img src=x')")
        page.run("document.querySelectorAll('.node')[2].dispatchEvent(new MouseEvent('click', {bubbles: true}))")
        page.wait("!document.querySelector('#detail-panel').hidden")
        for place in ("#worker-table", "#attention", "#chains"):
            page.run(f"document.querySelector('{place}').scrollIntoView()")
            page.wait(
                f"['<img src=x', '…'].some((text) => document.querySelector('{place}').textContent.includes(text))"
            )
        self.assertEqual(page.run("document.querySelectorAll('main img, main script').length"), 0)
        self.assertIsNone(page.run("window.struck ?? null"))
        self.expect_well(server, page)

    def test_no_script_but_its_own_runs_in_it(self):
        server, page = self.serve(simulated.Fleet(3, chains=1, standby=0))
        for attempt in (
            "const one = document.createElement('script'); one.append('window.struck = 1'); document.body.append(one)",
            "document.body.innerHTML = '<b>struck</b>'",
            "eval('window.struck = 1')",
        ):
            try:
                page.run(f"(() => {{ {attempt} }})()", as_page=True)
            except browser.Failed as refused:
                self.assertRegex(str(refused), "Trusted|Content Security Policy|unsafe-eval")
        self.assertIsNone(page.run("window.struck ?? null"))
        self.assertTrue(page.run("document.querySelector('main') !== null"))

    def test_keys_go_along_a_chain_and_open_a_worker(self):
        server, page = self.serve(simulated.Fleet(6, chains=2, standby=0))
        page.wait("document.querySelectorAll('.node').length === 7")
        page.run("document.querySelector('.node[tabindex=\"0\"]').focus()")
        names = []
        for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
            page.press(key)
            names.append(page.run("document.activeElement.getAttribute('aria-label').split(',')[0]"))
        self.assertEqual(len(set(names)), 4, names)
        self.assertEqual(page.run("document.querySelectorAll('.node[tabindex=\"0\"]').length"), 1)
        page.press("Enter")
        page.wait(f"document.querySelector('#detail-title').textContent === '{names[-1].split()[-1]}'")
        # Whatever can be pressed or filled in has a name.
        nameless = page.run(
            """[...document.querySelectorAll('button, input, select, [role=button]')].filter((one) =>
            !(one.getAttribute('aria-label') || one.textContent.trim()
              || one.closest('label')?.textContent.trim())).length"""
        )
        self.assertEqual(nameless, 0)
        self.expect_well(server, page)

    def test_the_daemon_that_goes_and_comes_again(self):
        fleet = simulated.Fleet(6, chains=2, standby=0)
        server, page = self.serve(fleet)
        page.wait("document.querySelectorAll('.node').length === 7")
        server.stopping.set()
        page.wait("document.querySelector('#connection').dataset.state === 'lost'")
        self.assertIn("trying again", page.text("#connection"))
        self.assertEqual(page.run("document.querySelectorAll('.node').length"), 7)
        server.stopping.clear()
        page.wait("document.querySelector('#connection').dataset.state === 'live'")

    def test_text_stands_out_from_its_ground_in_both_themes(self):
        _, page = self.serve(simulated.Fleet(6, chains=2, standby=1))
        page.wait("document.querySelectorAll('.node').length === 7")
        for theme in ("light", "dark"):
            page.run(f"document.documentElement.dataset.theme = '{theme}'")
            found = page.run(CONTRASTS)
            self.assertGreater(len(found), 20)
            self.assertEqual([one for one in found if one["ratio"] < 4.5], [], theme)


# Of each element with text of its own: WCAG's contrast of its colour with the ground that it stands on.
CONTRASTS = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = rgb(getComputedStyle(one).backgroundColor);
      if (colour[3] > 250) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll('header *, main *, footer *')) {
    const own = [...element.childNodes].filter((node) => node.nodeType === 3);
    const text = own.map((node) => node.data.trim()).join(' ').trim();
    if (!text || !element.getClientRects().length || element.matches(':disabled, .unseen, option, .unseen *')) continue;
    const style = getComputedStyle(element);
    const a = light(rgb(element instanceof SVGElement ? style.fill : style.color)), b = light(ground(element));
    found.push({text: text.slice(0, 30), ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)});
  }
  return found;
})()"""


if __name__ == "__main__":
    unittest.main()
