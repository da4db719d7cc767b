"""`python -m txsaga` is `txsaga`: for where the script is not on the path."""

import sys

from txsaga.cli.__main__ import main

sys.exit(main())
