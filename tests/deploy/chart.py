"""The chart in deploy/kubernetes, rendered by Helm."""

import pathlib

import helm_python
import yaml

DIRECTORY = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy" / "kubernetes"


def _texts(values, name):
    with helm_python.Chart.load(DIRECTORY) as chart:
        return chart.render(values or {}, name=name, namespace="rl")


def render(values=None, name="fleet"):
    """A list of objects."""
    return [one for file, text in _texts(values, name).items() if file.endswith(".yaml") for one in yaml.safe_load_all(text) if one]


def notes(values=None, name="fleet"):
    """What Helm says after an installation."""
    return next(text for file, text in _texts(values, name).items() if file.endswith("NOTES.txt"))


def find(objects, kind, name):
    return next(one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name)
