"""
How often the first and the last task of a flow are tried, unless the task or `default_args` say otherwise.

Airflow tries no task again by itself. A store that is away for a moment would then roll back a flow whose work is
done. What no retry can mend fails at once all the same.
"""

from __future__ import annotations

from datetime import timedelta

RETRIES = 5
RETRY_DELAY = timedelta(seconds=10)
