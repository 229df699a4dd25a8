"""Output layers whose rows are truncated Fourier series: logits, signs and witnesses."""
