"""Training in several processes: launching them, and steps whose result is that of one process."""
