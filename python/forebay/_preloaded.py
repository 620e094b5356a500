"""Imports the modules that methods of loaders use.

A signal handler may call any method, whichever it interrupts. If a method imported a module at its first use, a
handler that interrupts this import would find a module that is only half imported. So `import forebay` imports
these.
"""

import copyreg  # noqa: F401
import json  # noqa: F401
import logging  # noqa: F401
import operator  # noqa: F401

from forebay import _callers, _jagged, _pictures, _progress  # noqa: F401
