"""`python -m torchs4.cli`."""

import sys

from torchs4.cli import main

sys.exit(main())
