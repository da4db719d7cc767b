"""Views for people: the timeline and the preview of a transaction, and the figures of a store."""
