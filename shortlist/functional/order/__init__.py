"""Order statistics that learn: the k-th largest, plain and smoothed by noise."""
