#!/usr/bin/env python3
import os, re, glob
os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
have = {os.path.dirname(p) for p in glob.glob("sim/*/BUILD.gn") + glob.glob("traces/BUILD.gn")}
while True:
    bad = set()
    for d in have:
        for m in re.findall(r'"//((?:sim/|traces)[a-z]*)[":]', open(d + "/BUILD.gn").read()):
            if m not in have: bad.add(d)
    if not bad: break
    have -= bad
print("\n".join("//" + d for d in sorted(have)))
