"""The projections onto sets of k labels, and the solvers behind them."""
