"""Weights between Hugging Face checkpoints and Megatron ranks: a table of mappings, and what moves by it."""
