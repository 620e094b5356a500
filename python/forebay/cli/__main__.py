"""`python -m forebay.cli` is `forebay`."""

import sys

from forebay.cli import main

sys.exit(main())
