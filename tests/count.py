#!/usr/bin/env python3
"""count.py BUILD... LINT_OR_RUN_FAILED: adds up meson's test logs and prints the closing line.

Every test case counts: unittest and Check say how many they ran; a program that says nothing counts as one."""
import json
import re
import sys


def cases(record):
    """(passed, failed) of one test program, read from what its runner printed."""
    text = (record.get("stdout") or "") + (record.get("stderr") or "")
    ok = record["result"] in ("OK", "EXPECTEDFAIL")
    passed = failed = 0
    for checks, failures, errors in re.findall(r"Checks: (\d+), Failures: (\d+), Errors: (\d+)", text):
        bad = int(failures) + int(errors)
        passed, failed = passed + int(checks) - bad, failed + bad
    for ran in re.findall(r"^Ran (\d+) tests? in", text, re.M):
        bad = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", text))
        passed, failed = passed + int(ran) - bad, failed + bad
    if passed + failed == 0:
        passed, failed = (1, 0) if ok else (0, 1)
    if not ok and failed == 0:
        failed = 1
    return passed, failed


def main():
    passed = failed = 0
    for build in sys.argv[1:-1]:
        with open(build + "/meson-logs/testlog.json", encoding="utf-8") as log:
            for line in log:
                p, f = cases(json.loads(line))
                passed, failed = passed + p, failed + f
    if sys.argv[-1] != "0" and failed == 0:
        failed = 1
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
