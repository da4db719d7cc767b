"""What people look at: the timeline and the preview of a transaction, and the figures of a store."""
