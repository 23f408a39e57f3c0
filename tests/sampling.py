"""What `make test` tries of what takes long: every third. `make test ALL=1`, as CI, tries all."""

import os

EVERY = 1 if os.environ.get("ALL") else 3
