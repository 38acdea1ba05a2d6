#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the page of a trace without a browser.

report_page.py PAGE.html [ID...]

Elements are nested and closed, ids are there once and links lead to them, nothing is loaded from elsewhere, the only
script is the one that the page's policy names by its hash, nothing handles events by attribute, pictures and plots
have texts for those who do not see them, and the data of the timeline can be read. The IDs have to be there besides
those that every report has.
"""
import base64
import hashlib
import html.parser
import json
import re
import sys

VOID = {"meta", "img", "br", "hr", "input", "link", "base"}
ALWAYS = ["summary", "figures", "card-wall", "card-blocked", "card-bound", "card-checkpoint", "card-restore",
          "card-ready", "card-moved", "card-errors", "timeline", "timeline-tools", "trace-meta", "trace-spans",
          "sec-blocked", "sec-calls", "sec-tiers", "sec-conditions", "records"]


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.scripts, self.problems = [], [], [], [], []
        self.policy, self.viewport, self.text, self.lang = None, None, "", None

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        for name, value in attrs.items():
            if name.startswith("on"):
                self.problems.append(f"<{tag} {name}=...>")
            if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset") and \
                    not re.match(r"(data:image/(png|jpeg|gif|webp|svg\+xml);base64,|#)", value or ""):
                self.problems.append(f"<{tag} {name}={value!r}> loads something")
            if name == "style" and "url(" in value:
                self.problems.append(f"<{tag} style={value!r}>")
        if tag in ("iframe", "object", "embed", "link", "base", "form"):
            self.problems.append(f"<{tag}>")
        if tag == "a":
            self.links.append(attrs.get("href", ""))
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]
        if tag == "meta" and attrs.get("name") == "viewport":
            self.viewport = attrs["content"]
        if tag == "html":
            self.lang = attrs.get("lang")
        if tag == "script":
            self.scripts.append([attrs, ""])
        if tag == "img" and not attrs.get("alt"):
            self.problems.append("a picture without a text")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.problems.append(f"</{tag}> closes <{self.open[-1] if self.open else ''}> at {self.getpos()}")
        else:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data
        elif not self.open or self.open[-1] != "style":
            self.text += data


def read_spans(packed, lanes, labels):
    """As cli/report/trace_page.js does; returns how many there are."""
    data, at, total = base64.b64decode(packed, validate=True), 0, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    for _ in range(number()):
        lane, rows, count = number(), number(), number()
        assert lane < lanes and 1 <= rows <= 4, "a row of no lane"
        for _ in range(count):
            flags, _, length, label, _ = number(), number(), number(), number(), number()
            assert label == 0 or label < labels, "a span with a label that is not there"
            if flags & 32:
                merged, busy = number(), number()
                assert merged > 1 and busy <= length, "spans drawn together that are busier than long"
            if flags & 64:
                number()
        total += count
    assert at == len(data), "something is left behind the spans"
    return total


def main():
    text = open(sys.argv[1], encoding="utf-8", errors="strict").read()
    page = Page()
    page.feed(text)
    page.close()
    problems = page.problems
    if page.open:
        problems.append(f"never closed: {page.open}")
    for name in ALWAYS + sys.argv[2:]:
        if page.ids.count(name) != 1:
            problems.append(f"{page.ids.count(name)} elements are called {name}")
    problems += [f"the id {name} is there twice" for name in set(page.ids) if page.ids.count(name) > 1]
    problems += [f"a link to {link}" for link in page.links if link[:1] == "#" and link[1:] not in page.ids]
    if "https:" in text or text.count("http:") != text.count("http://www.w3.org/2000/svg"):
        problems.append("an address on the network")
    if re.search(r"@import|@font-face", text):
        problems.append("a style sheet or font from elsewhere")
    if not page.lang or "width=device-width" not in (page.viewport or ""):
        problems.append("no language, or no viewport")
    for part in ("default-src 'none'", "img-src data:", "base-uri 'none'"):
        if part not in (page.policy or ""):
            problems.append(f"the policy lacks {part}")
    code = [script for attrs, script in page.scripts if not attrs]
    if len(code) != 1 or len(page.scripts) != 3:
        problems.append(f"{len(page.scripts)} scripts, {len(code)} of them with code")
    else:
        digest = base64.b64encode(hashlib.sha256(code[0].encode()).digest()).decode()
        if f"script-src 'sha256-{digest}'" not in page.policy or "script-src 'unsafe" in page.policy:
            problems.append("the policy does not name the script")
    by_id = {attrs["id"]: script for attrs, script in page.scripts if "id" in attrs}
    meta = json.loads(by_id["trace-meta"])
    spans = read_spans(by_id["trace-spans"].strip(), len(meta["lanes"]), len(meta["labels"]))
    if re.search(r"\b(nan|inf|-0\.0)\b", page.text):
        problems.append("a number that is none")
    if len(text) > 10 << 20:
        problems.append(f"{len(text)} bytes")
    for problem in problems:
        print(problem)
    if not problems:
        print(f"ok, {len(text)} bytes, {len(meta['lanes'])} lanes, {spans} spans")
    return 1 if problems else 0


sys.exit(main())
