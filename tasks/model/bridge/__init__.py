"""Weights between Hugging Face's layout and Megatron ranks: a table of mappings, and what moves by it."""
