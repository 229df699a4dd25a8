"""Elementary symmetric polynomials, by the law of how many labels are present."""
