"""
PostgreSQL's snapshots as text: `xmin:xmax:xip,xip,…`.

A tick that must not take everything at once records an earlier snapshot than it saw. If the cap cut through
the transactions in progress, those would be dispatched twice or never.
"""


def in_progress(snapshot: str) -> list[str]:
    """Return the transactions that were running."""
    xip = snapshot.split(":")[2]
    return xip.split(",") if xip else []


def capped(snapshot: str, xmax: int) -> str:
    """Return the snapshot as it would be with a lower xmax."""
    xmin = int(snapshot.split(":")[0])
    running = [xid for xid in map(int, in_progress(snapshot)) if xid < xmax]
    return f"{min(xmin, xmax, *running)}:{xmax}:{','.join(map(str, running))}"
