"""The model card: what a model's folder says about itself, in the format of the Hugging Face Hub."""
