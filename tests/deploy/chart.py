"""The chart in deploy/kubernetes, rendered by Helm."""

import pathlib

import helm_python
import yaml

DIRECTORY = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy" / "kubernetes"


def render(values=None, name="fleet"):
    """A list of objects."""
    with helm_python.Chart.load(DIRECTORY) as chart:
        texts = chart.render(values or {}, name=name, namespace="rl")
    return [one for text in texts.values() for one in yaml.safe_load_all(text) if one]


def find(objects, kind, name):
    return next(one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name)
