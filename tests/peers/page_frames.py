#!/usr/bin/env python3
"""How fast a page of `predict --html` is in Chromium: page_frames.py PAGE.html

Prints, of the whole step and of a part of it: until the page is loaded; frames a second while it pans; what the
script takes to draw one; and what that takes with the pixels. An empty page's frames tell how busy the host is:

    offsim predict tests/bench/deepseek-v3.yaml --html page.html; tests/peers/page_frames.py page.html
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

FRAMES = 200
PAN = """(async () => {
  const loaded = performance.getEntriesByType("navigation")[0].loadEventEnd, draws = typeof drawLanes === "function";
  const pan = () => { const d = (view.to - view.from) * 0.003; view.from += d; view.to += d; drawLanes(); drawCurve(); };
  if (draws) setWindow(0, timeline.step_ns * PART);
  await new Promise((done) => setTimeout(done, 300));
  const frames = [], scripts = [], pixels = [], begun = performance.now();
  await new Promise((done) => {
    const step = () => {
      const now = performance.now();
      if (draws) { pan(); scripts.push(performance.now() - now); }
      if (frames.push(now) < FRAMES) requestAnimationFrame(step); else done();
    };
    requestAnimationFrame(step);
  });
  const a_second = 1000 * FRAMES / (performance.now() - begun);
  for (let i = 0; draws && i < 60; i++) {
    const now = performance.now();
    pan();
    for (const id of ["lanes", "curve"]) by(id).getContext("2d").getImageData(0, 0, 1, 1);  // waits for the pixels
    pixels.push(performance.now() - now);
  }
  const of = (times) => times.sort((a, b) => a - b) && times.length ? { least: times[0], median: times[times.length >> 1] } : null;
  return { loaded_ms: loaded, frames_a_second: a_second, script_ms: of(scripts), with_pixels_ms: of(pixels) };
})()"""


class Chromium:
    """A browser without a window, told over a pipe (the DevTools protocol)."""

    def __init__(self, profile):
        (to_it, self.to), (self.from_it, its) = os.pipe(), os.pipe()

        def take_pipes():  # by their numbers; above those, as they may be each other's
            os.dup2(os.dup(to_it), 13)
            os.dup2(os.dup(its), 14)
            os.dup2(13, 3)
            os.dup2(14, 4)
        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--window-size=1300,1000",
             "--remote-debugging-pipe", "about:blank"], preexec_fn=take_pipes, close_fds=False, stderr=subprocess.DEVNULL)
        self.read, self.count, self.session = b"", 0, None
        page = next(one for one in self("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        self("Page.enable")

    def wait(self, is_it):
        while True:
            while b"\0" not in self.read:
                self.read += os.read(self.from_it, 1 << 20)
            message, self.read = self.read.split(b"\0", 1)
            if is_it(json.loads(message)):
                return json.loads(message)

    def __call__(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        return self.wait(lambda answer: answer.get("id") == self.count)["result"]

    def run(self, page, script):
        self("Page.navigate", url=page)
        self.wait(lambda event: event.get("method") == "Page.loadEventFired")
        return self("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)["result"]["value"]


def main():
    page = pathlib.Path(sys.argv[1]).resolve().as_uri()
    for name, url, part in (("whole step", page, 1), ("a fiftieth", page, 0.02), ("empty page", "data:text/html,<p>empty", 1)):
        with tempfile.TemporaryDirectory() as profile:
            browser = Chromium(profile)
            found = browser.run(url, PAN.replace("PART", str(part)).replace("FRAMES", str(FRAMES)))
            browser("Browser.close")
            browser.process.wait()
        print(f"{name}: {json.dumps(found, default=str)}")


if __name__ == "__main__":
    main()
