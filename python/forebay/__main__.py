"""Runs the command `forebay` as `python -m forebay`."""

import sys

from forebay_command import main

sys.exit(main())
