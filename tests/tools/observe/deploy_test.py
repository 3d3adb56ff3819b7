"""What deploy/ gives to Prometheus and Grafana: texts that lead somewhere, and a dashboard of more fleets than one."""

import json
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def headings(path):
    """The anchors of a document, as renderers of Markdown make them."""
    lines = [line for line in path.read_text().splitlines() if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-") for line in lines}


class AlertsTest(unittest.TestCase):
    def test_each_has_a_description_and_a_heading_to_read(self):
        text = (ROOT / "deploy" / "weightcast-alerts.yml").read_text()
        alerts = re.split(r"\n\s+- alert: ", text)[1:]
        self.assertGreater(len(alerts), 10)
        for alert in alerts:
            name = alert.splitlines()[0]
            with self.subTest(name):
                self.assertRegex(alert, r'\n\s+description: "[A-Z].+\."\n')
                url = re.search(r'\n\s+runbook_url: "(.+)#(.+)"\n', alert + "\n")
                self.assertIsNotNone(url)
                self.assertIn(url[2], headings(ROOT / url[1]))


class DashboardTest(unittest.TestCase):
    def setUp(self):
        self.dashboard = json.loads((ROOT / "deploy" / "weightcast-dashboard.json").read_text())

    def test_every_expression_goes_by_the_fleet(self):
        self.assertIn("fleet", [variable["name"] for variable in self.dashboard["templating"]["list"]])
        for panel in self.dashboard["panels"]:
            for target in panel["targets"]:
                with self.subTest(panel["title"]):
                    for name, labels in re.findall(r"\b((?:weightcast|process)_\w+)(\{[^}]*\})?", target["expr"]):
                        self.assertIn('fleet=~"$fleet"', labels, name)

    def test_versions_are_whole_numbers(self):
        versions = [panel for panel in self.dashboard["panels"] if "ersion" in panel["title"]]
        self.assertGreaterEqual(len(versions), 2)
        for panel in self.dashboard["panels"]:
            if panel["title"] in ("Latest version", "Versions"):
                self.assertEqual(panel["fieldConfig"]["defaults"]["unit"], "none")


if __name__ == "__main__":
    unittest.main()
