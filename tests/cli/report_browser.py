#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at a report in headless Chromium, as its readers do.

report_browser.py PAGE.html FOLDER [brief]

The page has to load without a complaint and without asking the network for anything; its timeline zooms and pans by
wheel, mouse, fingers, keys and buttons; on a phone nothing is wider than the screen; dark it is dark; without
JavaScript everything but the zooming is there; and where a plot belongs there is one, in the pixels. Speaks WebDriver
to chromedriver, which is started here and listens on the loopback interface only. Screenshots are left in FOLDER.
Exit status 77: no browser. brief: on the desktop only.
"""
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

PHONE = (390, 844)
DESKTOP = (1280, 900)


def fail(text):
    sys.exit(f"report in a browser: {text}")


def check(condition, text):
    if not condition:
        fail(text)


# ---- pixels ----

# For each box of a picture the share of its pixels that are not of its most frequent colour. The browser has what it
# takes to read a PNG.
SHADES = """var done = arguments[2], boxes = arguments[1], image = new Image();
image.onload = function () {
  var canvas = document.createElement('canvas'), g = canvas.getContext('2d', { willReadFrequently: true });
  canvas.width = image.width; canvas.height = image.height;
  g.drawImage(image, 0, 0);
  done(boxes.map(function (b) {
    var w = Math.max(1, Math.floor(b.width)), h = Math.max(1, Math.floor(b.height));
    var p = new Uint32Array(g.getImageData(Math.ceil(b.x), Math.ceil(b.y), w, h).data.buffer), count = {}, most = 0;
    for (var i = 0; i < p.length; i++) most = Math.max(most, count[p[i]] = (count[p[i]] || 0) + 1);
    return 1 - most / p.length;
  }));
};
image.onerror = function () { done(null); };
image.src = 'data:image/png;base64,' + arguments[0];"""


def shades(browser, picture, found):
    shares = browser.call("POST", browser.session + "/execute/async", {"script": SHADES, "args": [picture, found]})
    check(shares is not None, "a screenshot cannot be read")
    return shares


# ---- the browser ----

class Browser:
    def __init__(self, folder):
        self.folder = folder
        self.log = open(os.path.join(folder, "chromedriver.log"), "w+", encoding="utf-8")
        self.driver = subprocess.Popen([shutil.which("chromedriver"), "--port=0"], stdout=self.log, stderr=self.log)
        self.session = self.size = None
        for _ in range(600):
            self.log.seek(0)
            port = re.search(r"started successfully on port (\d+)", self.log.read())
            if port:
                break
            check(self.driver.poll() is None, "chromedriver ended")
            time.sleep(0.05)
        else:
            fail("chromedriver does not start")
        self.base = f"http://127.0.0.1:{port.group(1)}"

    def call(self, method, path, body=None, may_fail=False):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data=data, method=method,
                                         headers={"Content-Type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as e:
            text = e.read().decode()
            if may_fail:
                return json.loads(text)["value"]
            fail(f"{path}: {text[:1000]}")

    def start(self, size, phone=False):
        """A fresh browser with a window of that size."""
        args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={self.folder}/profile-{size[0]}"]
        metrics = {"width": size[0], "height": size[1], "pixelRatio": 1, "touch": phone, "mobile": phone}
        options = {"args": args, "mobileEmulation": {"deviceMetrics": metrics}}
        self.stop()
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}},
            may_fail=self.size is None)
        if "sessionId" not in answer:
            # Not for the page to answer for: a container without what a browser needs.
            print(f"skipped: the browser does not start: {answer.get('message', answer)}")
            raise SystemExit(77)
        self.session = "/session/" + answer["sessionId"]
        self.size = size
        # Ignore the events of the browser before there is a page.
        self.logs("browser")
        self.logs("performance")

    def stop(self):
        if self.session:
            self.call("DELETE", self.session)
        self.session = None

    def end(self):
        try:
            self.stop()
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.log.close()

    def cdp(self, cmd, **params):
        return self.call("POST", self.session + "/goog/cdp/execute", {"cmd": cmd, "params": params})

    def load(self, page):
        self.call("POST", self.session + "/url", {"url": "file://" + os.path.abspath(page)})
        self.settle()

    def run(self, script):
        return self.call("POST", self.session + "/execute/sync", {"script": script, "args": []})

    def settle(self):
        """Until what was asked for is drawn: two frames."""
        self.call("POST", self.session + "/execute/async", {
            "script": "var done = arguments[0]; requestAnimationFrame(function () { requestAnimationFrame(function () { done(); }); });",
            "args": []})

    def act(self, *sources):
        self.call("POST", self.session + "/actions", {"actions": list(sources)})
        self.call("DELETE", self.session + "/actions")
        self.settle()

    def logs(self, kind):
        return self.call("POST", self.session + "/se/log", {"type": kind})

    def screenshot(self, name):
        """From the top to the end of the last plot."""
        height = self.run("return document.getElementById('hops').getBoundingClientRect().bottom + scrollY")
        shot = self.cdp("Page.captureScreenshot", captureBeyondViewport=True,
                        clip={"x": 0, "y": 0, "width": self.size[0], "height": height, "scale": 1})["data"]
        with open(os.path.join(self.folder, name), "wb") as f:
            f.write(base64.b64decode(shot))
        return shot


BOXES = """return Array.prototype.map.call(document.querySelectorAll('%s'), function (e) {
  var r = e.getBoundingClientRect();
  return { id: e.id || e.parentNode.id || e.className, x: r.left + scrollX, y: r.top + scrollY, width: r.width, height: r.height };
});"""


def boxes(browser, selector):
    """Where the elements are in a screenshot."""
    return browser.run(BOXES % selector)


def view(browser):
    t = browser.run("var d = document.getElementById('timeline').dataset; return [+d.from, +d.to];")
    return t[0], t[1]


def check_quiet(browser, what):
    for entry in browser.logs("browser"):
        check(entry["level"] not in ("SEVERE", "WARNING"), f"{what}: the console says: {entry['message']}")
    for entry in browser.logs("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            check(url.startswith(("file:", "data:", "about:", "chrome:")), f"{what}: it asks for {url}")


def check_static(browser, picture, what):
    """What has to be seen with and without JavaScript."""
    charts, lanes = boxes(browser, "figure.chart svg"), boxes(browser, ".tl-bars")
    check(len(charts) >= 4 and len(lanes) >= 3, f"{what}: {len(charts)} charts, {len(lanes)} lanes")
    for box, share in zip(charts, shades(browser, picture, charts)):
        check(share >= 0.01, f"{what}: {box['id']} at {box['x']:.0f},{box['y']:.0f} is empty ({share:.4f})")
    shares = shades(browser, picture, lanes)
    check(sum(share > 0.002 for share in shares) >= 3, f"{what}: lanes are not drawn: {shares}")


def middle_of(browser):
    """In the lane of the application, a little left of the middle."""
    browser.run("document.getElementById('timeline').scrollIntoView({ block: 'center' });")
    browser.settle()
    r = browser.run("var r = document.querySelectorAll('.tl-bars')[%s].getBoundingClientRect();"
                    "return [r.left, r.top, r.width, r.height];" %
                    "Math.min(1, document.querySelectorAll('.tl-bars').length - 1)")
    return int(r[0] + 0.4 * r[2]), int(r[1] + r[3] / 2), r[2]


def pointer(name, kind, *steps):
    return {"type": "pointer", "id": name, "parameters": {"pointerType": kind}, "actions": list(steps)}


def move(x, y, ms=0):
    return {"type": "pointerMove", "duration": ms, "x": int(x), "y": int(y)}


DOWN, UP = {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}


def any_tip(browser, x, y, width, action):
    """True if one of several places has a tip: any single one may be empty."""
    for share in (0, -0.3, -0.2, -0.1, 0.1, 0.2, 0.3, 0.4):
        browser.act(action(x + share * width))
        if browser.run("var t = document.querySelector('.tl-tip'); return !t.hidden && t.textContent !== '';"):
            return True
    return False


def narrower(before, after, what):
    check(after[1] - after[0] < 0.999 * (before[1] - before[0]), f"{what} does not zoom in: {before} {after}")


def desktop(browser, page):
    browser.start(DESKTOP)
    browser.load(page)
    picture = browser.screenshot("desktop.png")
    check_static(browser, picture, "desktop")
    whole = view(browser)
    check(whole[0] == 0 and whole[1] > 0, f"the whole run is not shown first: {whole}")
    text = browser.run("return document.querySelector('#timeline-tools output').textContent")
    check("whole run" in text, f"the view is called '{text}'")

    x, y, width = middle_of(browser)
    for _ in range(4):
        browser.act({"type": "wheel", "id": "w", "actions": [
            {"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": -300, "duration": 0}]})
        time.sleep(0.1)
    wheeled = view(browser)
    narrower(whole, wheeled, "the wheel")
    check(browser.screenshot("desktop-zoomed.png") != picture, "zooming changes nothing that is drawn")
    # The moment under the pointer stays there.
    share = 0.4
    check(abs(wheeled[0] + share * (wheeled[1] - wheeled[0]) - share * whole[1]) < 0.02 * whole[1],
          f"the wheel zooms elsewhere: {wheeled}")

    x, y, width = middle_of(browser)
    browser.act(pointer("m", "mouse", move(x, y), DOWN, move(x - 100, y, 100), UP))
    dragged = view(browser)
    check(dragged[0] > wheeled[0] and abs((dragged[1] - dragged[0]) - (wheeled[1] - wheeled[0])) <= 2,
          f"dragging does not move the view: {wheeled} {dragged}")

    check(any_tip(browser, x, y, width, lambda at: pointer("m", "mouse", move(at, y))),
          "pointing at an interval tells nothing")

    browser.run("document.getElementById('timeline').focus();")
    for key, test in (("+", lambda a, b: b[1] - b[0] < a[1] - a[0]), ("-", lambda a, b: b[1] - b[0] > a[1] - a[0]),
                      ("\ue014", lambda a, b: b[0] > a[0]), ("\ue012", lambda a, b: b[0] < a[0]),
                      ("0", lambda a, b: b == whole)):
        before = view(browser)
        browser.act({"type": "key", "id": "k", "actions": [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]})
        check(test(before, view(browser)), f"key {key!r}: {before} {view(browser)}")

    buttons(browser, whole)
    # From the table of waits to the timeline.
    browser.run("document.querySelector('[data-show] button').click();")
    browser.settle()
    narrower(whole, view(browser), "a wait in the table")
    check(browser.run("return document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the window")
    check_quiet(browser, "desktop")


def buttons(browser, whole):
    for action, test in (("in", lambda a, b: b[1] - b[0] < a[1] - a[0]), ("right", lambda a, b: b[0] > a[0]),
                         ("left", lambda a, b: b[0] < a[0]), ("out", lambda a, b: b[1] - b[0] > a[1] - a[0]),
                         ("reset", lambda a, b: b == whole)):
        before = view(browser)
        browser.run(f"document.querySelector('[data-action={action}]').click();")
        browser.settle()
        check(test(before, view(browser)), f"button {action}: {before} {view(browser)}")


def phone(browser, page):
    browser.start(PHONE, phone=True)
    browser.load(page)
    wide = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    check(wide[1] == PHONE[0] and wide[0] <= wide[1], f"on a phone the page is {wide[0]} wide, the screen {wide[1]}")
    sticking_out = browser.run(
        "return Array.prototype.filter.call(document.querySelectorAll('body *'), function (e) {"
        "  var r = e.getBoundingClientRect(); return r.width > 0 && r.right > innerWidth + 1 && !e.closest('.scroll');"
        "}).map(function (e) { return e.tagName + ' ' + e.id + ' ' + e.className; });")
    check(not sticking_out, f"on a phone these stick out: {sticking_out[:5]}")
    check_static(browser, browser.screenshot("phone.png"), "phone")
    whole = view(browser)
    x, y, width = middle_of(browser)
    browser.act(pointer("a", "touch", move(x - 20, y), DOWN, move(x - 90, y, 100), UP),
                pointer("b", "touch", move(x + 20, y), DOWN, move(x + 90, y, 100), UP))
    pinched = view(browser)
    narrower(whole, pinched, "a pinch")
    browser.act(pointer("a", "touch", move(x, y), DOWN, move(x - 60, y, 100), UP))
    check(view(browser)[0] > pinched[0], f"a finger does not move the view: {pinched} {view(browser)}")
    check(any_tip(browser, x, y, width, lambda at: pointer("a", "touch", move(at, y), DOWN, UP)),
          "a tap on an interval tells nothing")
    check_quiet(browser, "phone")


LUMINANCE = """function lum(c) { c = c.match(/[\\d.]+/g).slice(0, 3).map(function (v) { v /= 255;
  return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); }); return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; }
function paper(e) { for (; e; e = e.parentElement) { var b = getComputedStyle(e).backgroundColor;
  if (!/, 0\\)$/.test(b) && b !== 'transparent') return b; } return 'rgb(255, 255, 255)'; }
function ratio(e) { var a = lum(getComputedStyle(e).color), b = lum(paper(e)); return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }
"""


def contrast(browser, what):
    low = browser.run(LUMINANCE + """
      return Array.prototype.filter.call(document.querySelectorAll('p, h1, h2, h3, td, th, small, b, li, .name, .tl-name, figcaption, button, summary'),
        function (e) { return e.textContent.trim() && ratio(e) < 4.5; }).map(function (e) { return e.tagName + ' ' + e.textContent.trim().slice(0, 30); });""")
    check(not low, f"{what}: too little contrast: {low[:5]}")


def dark(browser, page):
    """In the browser of the desktop."""
    contrast(browser, "light")
    browser.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.load(page)
    background = browser.run(LUMINANCE + "return lum(paper(document.body));")
    check(background < 0.05, f"dark, the page is not: {background}")
    contrast(browser, "dark")
    check_static(browser, browser.screenshot("dark.png"), "dark")
    check_quiet(browser, "dark")
    browser.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])


def without_script(browser, page):
    browser.cdp("Emulation.setScriptExecutionDisabled", value=True)
    browser.call("POST", browser.session + "/url", {"url": "file://" + os.path.abspath(page)})
    check(browser.run("return document.querySelectorAll('canvas').length") == 0, "scripts are not off")
    picture = browser.screenshot("without-script.png")
    hidden = browser.run("return Array.prototype.every.call(document.querySelectorAll('.js-only, .tl-tools'),"
                         "function (e) { return e.getBoundingClientRect().height === 0; });")
    check(hidden, "without JavaScript there are buttons that do nothing")
    check(len(browser.run("return document.querySelector('main').innerText")) > 1500, "without JavaScript there is little text")
    browser.cdp("Emulation.setScriptExecutionDisabled", value=False)
    check_static(browser, picture, "without JavaScript")


def main():
    page, folder = sys.argv[1:3]
    if not shutil.which("chromedriver") or not (shutil.which("chromium") or shutil.which("google-chrome")):
        print("skipped: no chromium and chromedriver (Debian: chromium, chromium-driver)")
        return 77
    browser = Browser(folder)
    try:
        desktop(browser, page)
        if sys.argv[3:] != ["brief"]:
            dark(browser, page)
            without_script(browser, page)
            phone(browser, page)
    finally:
        browser.end()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
