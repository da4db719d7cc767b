"""The composition root: settings in, broker out. Only this package knows which adapter implements which port."""
