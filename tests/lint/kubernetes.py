# SPDX-License-Identifier: Apache-2.0
"""Checks manifests by the models of the Kubernetes client for Python, which are generated from the API's own schema.

  kubernetes.py FILE SETTINGS

A field that the schema does not have, or has elsewhere, is lost on the way through the models; one that is required, or has a
value that is not allowed, is refused by them. SETTINGS is a page that names every setting of the daemon.
"""
import json
import re
import sys

sys.path.pop(0)  # this folder has a file of that name, too
import yaml
from kubernetes import client

MODELS = {("apps/v1", "DaemonSet"): "V1DaemonSet", ("batch/v1", "Job"): "V1Job"}


class Answer:
    """Looks like an answer of a server to the client."""

    def __init__(self, document):
        self.data = json.dumps(document)


def lost(path, given, left):
    """Lists the differences."""
    if isinstance(given, dict) and isinstance(left, dict):
        for key in given:
            yield from lost(f"{path}.{key}", given[key], left.get(key))
    elif isinstance(given, list) and isinstance(left, list) and len(given) == len(left):
        for i, item in enumerate(given):
            yield from lost(f"{path}[{i}]", item, left[i])
    elif given != left:
        yield f"{path}: {given!r} is not in the schema there"


def main():
    wrong, seen = [], []
    api = client.ApiClient()
    with open(sys.argv[1]) as f:
        documents = list(yaml.safe_load_all(f))
    with open(sys.argv[2]) as f:
        settings = f.read()
    for document in documents:
        kind = (document.get("apiVersion"), document.get("kind"))
        seen.append(kind[1])
        if kind not in MODELS:
            wrong.append(f"{kind}: not one of {sorted(MODELS)}")
            continue
        try:
            model = api.deserialize(Answer(document), MODELS[kind])
        except ValueError as e:
            wrong.append(f"{kind[1]}: {e}")
            continue
        wrong += lost(kind[1], document, api.sanitize_for_serialization(model))
        wrong += [f"{kind[1]}: {name} is no setting" for name in re.findall(r"VARVE_CACHED_\w+", json.dumps(document))
                  if f"`{name}`" not in settings]
    if sorted(seen) != ["DaemonSet", "Job"]:
        wrong.append(f"there are {seen}, and not a DaemonSet and a Job")
    print("\n".join(wrong) or f"ok, {len(documents)} documents")
    sys.exit(bool(wrong))


main()
