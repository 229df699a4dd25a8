"""Sets chosen by a risk that must stay below a bound, or by the greatest expected utility."""
