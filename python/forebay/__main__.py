"""Runs the command `forebay` as `python -m forebay`."""

import sys

from forebay._command import main

sys.exit(main())
