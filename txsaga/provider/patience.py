"""
How often the first and the last task of a flow are tried, and how soon its run is asked about.

Neither counts where the flow, its tasks or `default_args` say otherwise.

Airflow tries no task again by itself. A store that is away for a moment would then roll back a flow whose work is
done. What no retry can mend fails at once all the same.
"""

from __future__ import annotations

from datetime import timedelta

RETRIES = 5
RETRY_DELAY = timedelta(seconds=10)
LEASE = timedelta(minutes=1)
"""Without a word from a flow's tasks its run is asked about: one that lives keeps it, whatever time it takes."""
