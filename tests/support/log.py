"""The lines of the log."""

import re

# A line of the log: time in UTC, process, level, message.
LINE = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000\] \[\d+\] \[[A-Z]+\] .*")
