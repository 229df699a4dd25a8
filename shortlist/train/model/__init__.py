"""The model that is trained: its plan, encoders, sparse layers and starting point."""
