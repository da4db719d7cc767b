"""The composition root: settings in, broker out. It alone knows which adapter fills which port."""
